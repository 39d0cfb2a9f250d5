//! A network in memory, for paused time: UDP with delay, loss, reordering, duplication and a limit
//! of size; TCP that a dead host leaves hanging. Everything random comes from one seed, and every
//! datagram's fate goes into a digest.

use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, UdpPoller};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{self, ErrorKind, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::sync::mpsc;
use tokio::time::Instant;
use transfer::{BoxPipe, Sockets, Tcp};

/// Bytes on their way over one TCP connection.
const TCP_WINDOW: usize = 64 << 10;

/// What happens to datagrams.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weather {
    /// One way.
    pub(crate) delay: Duration,
    /// Up to so much more, so that datagrams overtake each other.
    pub(crate) jitter: Duration,
    /// Of a thousand datagrams, so many are lost.
    pub(crate) lost_per_mille: u64,
    /// … and so many come twice.
    pub(crate) doubled_per_mille: u64,
    /// Longer ones vanish.
    pub(crate) mtu: usize,
    /// Nothing passes.
    pub(crate) udp_blocked: bool,
}

pub(crate) const FAIR: Weather = Weather {
    delay: Duration::from_millis(5),
    jitter: Duration::ZERO,
    lost_per_mille: 0,
    doubled_per_mille: 0,
    mtu: 9000,
    udp_blocked: false,
};

struct State {
    random: u64,
    weather: Weather,
    dark: BTreeSet<IpAddr>,
    udp: BTreeMap<SocketAddr, Arc<Socket>>,
    tcp: BTreeMap<SocketAddr, mpsc::UnboundedSender<(BoxPipe, SocketAddr)>>,
    waiting: Vec<Waker>,
    trace: blake3::Hasher,
    begun: Instant,
    next_host: u8,
    datagrams: u64,
    connects: u64,
}

/// The network.
#[derive(Clone)]
pub(crate) struct Net(Arc<Mutex<State>>);

impl Net {
    pub(crate) fn new(seed: u64, weather: Weather) -> Self {
        Self(Arc::new(Mutex::new(State {
            random: seed.wrapping_mul(2).wrapping_add(1),
            weather,
            dark: BTreeSet::new(),
            udp: BTreeMap::new(),
            tcp: BTreeMap::new(),
            waiting: Vec::new(),
            trace: blake3::Hasher::new(),
            begun: Instant::now(),
            next_host: 1,
            datagrams: 0,
            connects: 0,
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// Sockets of a new host.
    pub(crate) fn host(&self) -> Sockets {
        let mut state = self.state();
        let number = state.next_host;
        state.next_host += 1;
        drop(state);
        self.bind(SocketAddr::from(([10, 0, 0, number], 7600)))
    }

    /// Sockets at an address; they replace those that were there, as after a restart.
    pub(crate) fn bind(&self, addr: SocketAddr) -> Sockets {
        let socket = Arc::new(Socket { addr, net: self.clone(), inbox: Mutex::default() });
        let (sender, incoming) = mpsc::unbounded_channel();
        let mut state = self.state();
        state.udp.insert(addr, Arc::clone(&socket));
        state.tcp.insert(transfer::tls_addr(addr).unwrap(), sender);
        let incoming = tokio::sync::Mutex::new(incoming);
        let tcp = Arc::new(Listener { net: self.clone(), addr, incoming });
        Sockets { udp: socket, tcp, seed: Some([addr.ip().to_string().len() as u8; 32]) }
    }

    pub(crate) fn set(&self, change: impl FnOnce(&mut Weather)) {
        change(&mut self.state().weather);
    }

    /// From now on nothing leaves or reaches this host.
    pub(crate) fn darken(&self, host: SocketAddr) {
        self.state().dark.insert(host.ip());
    }

    pub(crate) fn lighten(&self, host: SocketAddr) {
        let mut state = self.state();
        state.dark.remove(&host.ip());
        state.waiting.drain(..).for_each(Waker::wake);
    }

    /// Datagrams sent so far.
    pub(crate) fn datagrams(&self) -> u64 {
        self.state().datagrams
    }

    /// TCP connections asked for so far.
    pub(crate) fn connects(&self) -> u64 {
        self.state().connects
    }

    /// Digest of every datagram's time, ends, length and fate.
    pub(crate) fn digest(&self) -> String {
        self.state().trace.finalize().to_hex().to_string()
    }

    fn send(&self, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        let mut state = self.state();
        state.datagrams += 1;
        let weather = state.weather;
        let lost = weather.udp_blocked
            || bytes.len() > weather.mtu
            || state.is_dark(from.ip(), to.ip())
            || state.per_mille() < weather.lost_per_mille;
        let copies = match lost {
            true => 0,
            false => 1 + u64::from(state.per_mille() < weather.doubled_per_mille),
        };
        let now = state.begun.elapsed().as_nanos();
        let line = format!("{now} {from} {to} {} {copies}\n", bytes.len());
        state.trace.update(line.as_bytes());
        let Some(socket) = state.udp.get(&to).cloned() else { return };
        for _ in 0..copies {
            let late = weather.jitter.as_micros() as u64;
            let late = if late == 0 { 0 } else { state.draw() % late };
            let at = Instant::now() + weather.delay + Duration::from_micros(late);
            let (socket, bytes, net) = (Arc::clone(&socket), bytes.to_vec(), self.clone());
            tokio::spawn(async move {
                tokio::time::sleep_until(at).await;
                if !net.state().is_dark(from.ip(), to.ip()) {
                    socket.arrive(from, bytes);
                }
            });
        }
    }
}

impl State {
    /// Knuth's MMIX generator.
    fn draw(&mut self) -> u64 {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.random >> 33
    }

    fn per_mille(&mut self) -> u64 {
        self.draw() % 1000
    }

    fn is_dark(&self, a: IpAddr, b: IpAddr) -> bool {
        self.dark.contains(&a) || self.dark.contains(&b)
    }
}

#[derive(Default)]
struct Inbox {
    datagrams: VecDeque<(SocketAddr, Vec<u8>)>,
    reader: Option<Waker>,
}

struct Socket {
    addr: SocketAddr,
    net: Net,
    inbox: Mutex<Inbox>,
}

impl std::fmt::Debug for Socket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.addr)
    }
}

impl Socket {
    fn arrive(&self, from: SocketAddr, bytes: Vec<u8>) {
        let mut inbox = self.inbox.lock().unwrap();
        inbox.datagrams.push_back((from, bytes));
        if let Some(reader) = inbox.reader.take() {
            reader.wake();
        }
    }
}

#[derive(Debug)]
struct Writable;

impl UdpPoller for Writable {
    fn poll_writable(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl AsyncUdpSocket for Socket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(Writable)
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.net.send(self.addr, transmit.destination, transmit.contents);
        Ok(())
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let mut inbox = self.inbox.lock().unwrap();
        let Some((from, bytes)) = inbox.datagrams.pop_front() else {
            inbox.reader = Some(cx.waker().clone());
            return Poll::Pending;
        };
        bufs[0][..bytes.len()].copy_from_slice(&bytes);
        meta[0] =
            RecvMeta { addr: from, len: bytes.len(), stride: bytes.len(), ..RecvMeta::default() };
        Poll::Ready(Ok(1))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.addr)
    }

    fn may_fragment(&self) -> bool {
        false
    }
}

struct Listener {
    net: Net,
    addr: SocketAddr,
    incoming: tokio::sync::Mutex<mpsc::UnboundedReceiver<(BoxPipe, SocketAddr)>>,
}

impl Tcp for Listener {
    fn accept(&self) -> futures::future::BoxFuture<'_, io::Result<(BoxPipe, SocketAddr)>> {
        Box::pin(async move {
            match self.incoming.lock().await.recv().await {
                Some(accepted) => Ok(accepted),
                None => std::future::pending().await,
            }
        })
    }

    fn connect(&self, to: SocketAddr) -> futures::future::BoxFuture<'_, io::Result<BoxPipe>> {
        Box::pin(async move {
            let (dark, delay, listener) = {
                let mut state = self.net.state();
                state.connects += 1;
                let dark = state.is_dark(self.addr.ip(), to.ip());
                (dark, state.weather.delay * 2, state.tcp.get(&to).cloned())
            };
            if dark {
                return std::future::pending().await;
            }
            tokio::time::sleep(delay).await;
            let refused = || io::Error::from(ErrorKind::ConnectionRefused);
            let listener = listener.ok_or_else(refused)?;
            let (near, far) = tokio::io::duplex(TCP_WINDOW);
            let ends = [self.addr.ip(), to.ip()];
            let near = Box::new(Wire { pipe: near, net: self.net.clone(), ends });
            let far = Box::new(Wire { pipe: far, net: self.net.clone(), ends });
            listener.send((far, self.addr)).map_err(|_| refused())?;
            Ok(near as BoxPipe)
        })
    }
}

/// One end of a TCP connection; stands still while a host at one of its ends is dark.
struct Wire {
    pipe: DuplexStream,
    net: Net,
    ends: [IpAddr; 2],
}

impl Wire {
    fn stands_still(&self, cx: &Context<'_>) -> bool {
        let mut state = self.net.state();
        let dark = state.is_dark(self.ends[0], self.ends[1]);
        if dark {
            state.waiting.push(cx.waker().clone());
        }
        dark
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.stands_still(cx) {
            return Poll::Pending;
        }
        Pin::new(&mut self.pipe).poll_read(cx, buf)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.stands_still(cx) {
            return Poll::Pending;
        }
        Pin::new(&mut self.pipe).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_shutdown(cx)
    }
}
