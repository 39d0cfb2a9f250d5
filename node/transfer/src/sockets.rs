//! What an endpoint stands on: a UDP socket for QUIC, and TCP for the path where UDP is blocked.
//! Both are abstract, so that tests can put an endpoint on a network of their own.

use crate::error::TransferError;
use crate::quic;
use futures::future::BoxFuture;
use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, Runtime, TokioRuntime, UdpPoller};
use std::io::{self, ErrorKind, IoSliceMut};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};

/// Ports that are tried when any will do: the next number must be free for TCP.
const PORT_TRIES: usize = 32;

/// A TCP connection.
pub trait Pipe: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Pipe for T {}

/// A TCP connection of any kind.
pub type BoxPipe = Box<dyn Pipe>;

/// The TCP side of a network.
pub trait Tcp: Send + Sync + 'static {
    /// Waits for the next connection in, and says where it comes from.
    fn accept(&self) -> BoxFuture<'_, io::Result<(BoxPipe, SocketAddr)>>;

    /// Connects. Dropping the future gives up.
    fn connect(&self, to: SocketAddr) -> BoxFuture<'_, io::Result<BoxPipe>>;
}

/// The sockets of one endpoint.
#[derive(Clone)]
pub struct Sockets {
    /// The UDP socket that QUIC runs on. Its address is the endpoint's; TCP is on the next port.
    pub udp: Arc<dyn AsyncUdpSocket>,
    /// The TCP side.
    pub tcp: Arc<dyn Tcp>,
    /// Fixes what QUIC draws at random for its schedule (connection ids, skipped packet numbers).
    /// For tests only: `None` draws from the system.
    pub seed: Option<[u8; 32]>,
}

/// Where the TLS-TCP path of the node at `addr` is: on the next port number. `None` for the last
/// one.
pub fn tls_addr(addr: SocketAddr) -> Option<SocketAddr> {
    Some(SocketAddr::new(addr.ip(), addr.port().checked_add(1)?))
}

impl Sockets {
    /// Binds UDP at `listen` and TCP at the next port number. Port 0 takes two free ones. Without
    /// `udp` the UDP port is neither bound nor used. Must be called inside a tokio runtime.
    pub fn bind(listen: SocketAddr, udp: bool) -> Result<Self, TransferError> {
        let mut tries = if listen.port() == 0 { PORT_TRIES } else { 1 };
        loop {
            tries -= 1;
            match bind_once(listen, udp) {
                Err(TransferError::TcpInUse(_) | TransferError::LastPort(_)) if tries > 0 => {}
                outcome => return outcome,
            }
        }
    }

    /// For a client that listens nowhere, to reach `addr`.
    pub(crate) fn client(addr: SocketAddr) -> io::Result<Self> {
        let from = match addr {
            SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
        };
        let udp = TokioRuntime.wrap_udp_socket(std::net::UdpSocket::bind(from)?)?;
        Ok(Self { udp, tcp: Arc::new(SystemTcp(None)), seed: None })
    }
}

fn bind_once(listen: SocketAddr, with_udp: bool) -> Result<Sockets, TransferError> {
    let failed = |e: io::Error| match e.kind() {
        ErrorKind::AddrInUse => TransferError::InUse(listen),
        _ => TransferError::Bind(listen, e),
    };
    let (addr, udp): (SocketAddr, Arc<dyn AsyncUdpSocket>) = if !with_udp && listen.port() > 0 {
        (listen, Arc::new(NoUdp(listen)))
    } else {
        let socket = quic::socket(listen).map_err(failed)?;
        let addr = socket.local_addr().map_err(failed)?;
        match with_udp {
            true => (addr, TokioRuntime.wrap_udp_socket(socket).map_err(failed)?),
            // It only found a free number.
            false => (addr, Arc::new(NoUdp(addr))),
        }
    };
    let next = tls_addr(addr).ok_or(TransferError::LastPort(addr))?;
    let tcp_failed = |e: io::Error| match e.kind() {
        ErrorKind::AddrInUse => TransferError::TcpInUse(next),
        _ => TransferError::TcpBind(next, e),
    };
    let listener = listener(next).map_err(tcp_failed)?;
    Ok(Sockets { udp, tcp: Arc::new(SystemTcp(Some(listener))), seed: None })
}

/// A restarted node must get its port again at once, so the address is reused.
fn listener(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = match addr {
        SocketAddr::V4(_) => tokio::net::TcpSocket::new_v4()?,
        SocketAddr::V6(_) => tokio::net::TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    socket.listen(1024)
}

/// The system's TCP, listening or not.
struct SystemTcp(Option<TcpListener>);

impl Tcp for SystemTcp {
    fn accept(&self) -> BoxFuture<'_, io::Result<(BoxPipe, SocketAddr)>> {
        Box::pin(async move {
            let Some(listener) = &self.0 else { return std::future::pending().await };
            let (stream, from) = listener.accept().await?;
            stream.set_nodelay(true)?;
            Ok((Box::new(stream) as BoxPipe, from))
        })
    }

    fn connect(&self, to: SocketAddr) -> BoxFuture<'_, io::Result<BoxPipe>> {
        Box::pin(async move {
            let stream = TcpStream::connect(to).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as BoxPipe)
        })
    }
}

/// Stands in for the UDP socket of a node that must not use UDP: nothing leaves, nothing comes.
#[derive(Debug)]
struct NoUdp(SocketAddr);

impl AsyncUdpSocket for NoUdp {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(AlwaysWritable)
    }

    fn try_send(&self, _transmit: &Transmit<'_>) -> io::Result<()> {
        Ok(())
    }

    fn poll_recv(
        &self,
        _cx: &mut Context<'_>,
        _bufs: &mut [IoSliceMut<'_>],
        _meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        Poll::Pending
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.0)
    }
}

#[derive(Debug)]
struct AlwaysWritable;

impl UdpPoller for AlwaysWritable {
    fn poll_writable(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
