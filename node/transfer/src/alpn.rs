//! The protocols of the port.

/// A protocol, as the TLS handshake names it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Alpn {
    /// Placed requests and their streams, between members.
    Serve,
    /// Blocks, between members.
    Blocks,
    /// Bytes named by their content, between members.
    Blobs,
    /// A stranger asks to join.
    Join,
}

impl Alpn {
    /// All, in the order in which the server prefers them.
    pub const ALL: [Self; 4] = [Self::Serve, Self::Blocks, Self::Blobs, Self::Join];

    /// The name on the wire.
    pub const fn name(self) -> &'static [u8] {
        match self {
            Self::Serve => b"dn-serve/1",
            Self::Blocks => b"dn-blocks/1",
            Self::Blobs => b"dn-blobs/1",
            Self::Join => b"dn-join/1",
        }
    }

    /// The protocol with this name.
    pub fn from_name(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|alpn| alpn.name() == name)
    }
}
