//! QUIC settings, and the parts of quinn that take the node's identity.
//!
//! Measured: about 1 GB/s on loopback needs an MTU of 6500 with segmentation offload and large
//! windows; larger MTUs with offload hang, so 6500 is the ceiling.

use crate::config::Limits;
use protocol::sign::Keypair;
use quinn::crypto::{CryptoError, HmacKey};
use quinn::udp::UdpSocketState;
use quinn::{
    ConnectionId, ConnectionIdGenerator, EndpointConfig, IdleTimeout, MtuDiscoveryConfig,
    TransportConfig, VarInt,
};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

/// Largest UDP payload that is sent or taken, in bytes.
const MTU_MAX: u16 = 6500;
/// UDP payload to begin with: what every IPv6 path carries.
const MTU_FIRST: u16 = 1200;
/// Bytes a reader of blocks lets a holder send ahead, per stream and per connection.
const BLOCKS_WINDOW: u32 = 32 << 20;
/// Bytes of requests a server lets a member send ahead.
const MEMBER_WINDOW: u32 = 16 << 20;
/// Bytes a server takes before it knows who speaks.
const STRANGER_WINDOW: u32 = 64 << 10;
/// Bytes of one request stream that are taken ahead.
const REQUEST_WINDOW: u32 = 1 << 20;
/// Unacknowledged bytes that a sender keeps.
const SEND_WINDOW: u64 = 32 << 20;
/// Datagrams of unaccepted connections that are kept.
const INCOMING_MAX: usize = 256;
/// Kernel buffers of the socket that are asked for, in bytes. Linux's usual 208 KiB overflow while a
/// reader verifies a block: measured on loopback, one packet in ten was lost.
const SOCKET_BUFFER: usize = 8 << 20;

fn common(limits: &Limits) -> TransportConfig {
    let mut discovery = MtuDiscoveryConfig::default();
    discovery.upper_bound(MTU_MAX);
    let mut config = TransportConfig::default();
    config
        .initial_mtu(MTU_FIRST)
        .mtu_discovery_config(Some(discovery))
        .enable_segmentation_offload(true)
        .max_idle_timeout(IdleTimeout::try_from(limits.idle).ok())
        .keep_alive_interval(Some(limits.keep_alive))
        .initial_rtt(Duration::from_millis(50))
        .send_window(SEND_WINDOW)
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .datagram_receive_buffer_size(None);
    config
}

/// For connections out: the peer opens no streams and may send many bytes of blocks.
pub(crate) fn client_transport(limits: &Limits) -> TransportConfig {
    let mut config = common(limits);
    config
        .max_concurrent_bidi_streams(VarInt::from_u32(0))
        .stream_receive_window(VarInt::from_u32(BLOCKS_WINDOW))
        .receive_window(VarInt::from_u32(BLOCKS_WINDOW));
    config
}

/// For connections in: one stream and little memory until [`welcome`].
pub(crate) fn server_transport(limits: &Limits) -> TransportConfig {
    let mut config = common(limits);
    config
        .max_concurrent_bidi_streams(VarInt::from_u32(1))
        .stream_receive_window(VarInt::from_u32(REQUEST_WINDOW))
        .receive_window(VarInt::from_u32(STRANGER_WINDOW));
    config
}

/// Gives a member that has said Hello its streams and window.
pub(crate) fn welcome(connection: &quinn::Connection, streams: u32) {
    connection.set_max_concurrent_bi_streams(VarInt::from_u32(streams));
    connection.set_receive_window(VarInt::from_u32(MEMBER_WINDOW));
}

/// One connection out as `rustls` describes it.
pub(crate) fn client_config(
    tls: rustls::ClientConfig,
    transport: &Arc<TransportConfig>,
) -> Result<quinn::ClientConfig, String> {
    let crypto =
        quinn::crypto::rustls::QuicClientConfig::try_from(tls).map_err(|e| e.to_string())?;
    let mut config = quinn::ClientConfig::new(Arc::new(crypto));
    config.transport_config(Arc::clone(transport));
    Ok(config)
}

/// A server configuration; each connection gets its own copy with its own `tls`.
pub(crate) fn server_config(
    tls: rustls::ServerConfig,
    transport: &Arc<TransportConfig>,
) -> Result<quinn::ServerConfig, String> {
    let mut config = quinn::ServerConfig::with_crypto(server_crypto(tls)?);
    config.transport_config(Arc::clone(transport)).max_incoming(INCOMING_MAX);
    Ok(config)
}

/// The TLS part of a server configuration.
pub(crate) fn server_crypto(
    tls: rustls::ServerConfig,
) -> Result<Arc<dyn quinn::crypto::ServerConfig>, String> {
    let crypto =
        quinn::crypto::rustls::QuicServerConfig::try_from(tls).map_err(|e| e.to_string())?;
    Ok(Arc::new(crypto))
}

/// Binds the port and asks for large buffers; the kernel gives at most `net.core.rmem_max` and
/// `wmem_max`.
pub(crate) fn socket(listen: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(listen)?;
    let state = UdpSocketState::new((&socket).into())?;
    state.set_recv_buffer_size((&socket).into(), SOCKET_BUFFER)?;
    state.set_send_buffer_size((&socket).into(), SOCKET_BUFFER)?;
    let given = state.recv_buffer_size((&socket).into())?;
    if given < SOCKET_BUFFER {
        tracing::info!(
            "the kernel gives UDP {} KiB of receive buffer; for fast transfers set \
             net.core.rmem_max to {SOCKET_BUFFER}",
            given >> 10
        );
    }
    Ok(socket)
}

/// Settings of the port. The key of stateless resets comes from the node's identity, so that a
/// restarted node tells its peers at once that their connections are gone.
pub(crate) fn endpoint_config(
    keypair: &Keypair,
    fixed: Option<[u8; 32]>,
) -> Result<EndpointConfig, String> {
    let mut hasher = blake3::Hasher::new_derive_key("dynamo-node 2026-11 quic reset key");
    hasher.update(&*zeroize::Zeroizing::new(keypair.seed()));
    let mut seed = fixed.unwrap_or_default();
    if fixed.is_none() {
        getrandom::fill(&mut seed).map_err(|e| e.to_string())?;
    }
    let mut config = EndpointConfig::new(Arc::new(ResetKey(*hasher.finalize().as_bytes())));
    config
        .rng_seed(fixed)
        .cid_generator(move || Box::new(Cids { seed, made: 0 }))
        .max_udp_payload_size(MTU_MAX)
        .map_err(|e| e.to_string())?;
    Ok(config)
}

/// Signs stateless resets.
struct ResetKey([u8; 32]);

impl HmacKey for ResetKey {
    fn sign(&self, data: &[u8], signature_out: &mut [u8]) {
        blake3::Hasher::new_keyed(&self.0).update(data).finalize_xof().fill(signature_out);
    }

    fn signature_len(&self) -> usize {
        32
    }

    fn verify(&self, data: &[u8], signature: &[u8]) -> Result<(), CryptoError> {
        let wanted = blake3::keyed_hash(&self.0, data);
        let given = <[u8; 32]>::try_from(signature).map_err(|_| CryptoError)?;
        // `blake3::Hash` compares in constant time.
        if wanted == blake3::Hash::from_bytes(given) { Ok(()) } else { Err(CryptoError) }
    }
}

/// Random connection ids that any life of the node accepts as possible, so that it answers packets
/// of an earlier life with a reset. (quinn's default drops them, and the peer waits for its idle
/// timeout.)
struct Cids {
    seed: [u8; 32],
    made: u64,
}

impl ConnectionIdGenerator for Cids {
    fn generate_cid(&mut self) -> ConnectionId {
        self.made += 1;
        let mut id = [0u8; 8];
        blake3::Hasher::new_keyed(&self.seed)
            .update(&self.made.to_le_bytes())
            .finalize_xof()
            .fill(&mut id);
        ConnectionId::new(&id)
    }

    fn cid_len(&self) -> usize {
        8
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}
