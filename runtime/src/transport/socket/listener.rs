//! Where a rank listens for the links of its peers.
//!
//! One socket an address, opened before the first all-gather so that it is there when peers learn of
//! it, and closed when the last peer is connected. Which addresses is the caller's choice.

use super::super::error::LinkError;
use super::super::options::Options;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, accept_with, bind, getsockname, listen, socket_with, sockopt,
};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Connections that may wait to be taken. The kernel lowers it to `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// Idle time, then time between probes, then probes without answer, until a peer whose host is gone
/// counts as lost: 70 s. Ours; a stopped process answers probes, since its kernel does.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(30), Duration::from_secs(10), 4);

/// Open listening sockets.
#[derive(Debug)]
pub(crate) struct Listener {
    sockets: Vec<(OwnedFd, SocketAddr)>,
}

impl Listener {
    /// Listens on every address of the options that works.
    ///
    /// Errors: none works; the first one's reason.
    pub(crate) fn open(rank: u32, options: &Options) -> Result<Self, LinkError> {
        let mut sockets = Vec::new();
        let mut first_error = None;
        for ip in &options.listen {
            match listen_on(*ip, options) {
                Ok(socket) => sockets.push(socket),
                Err(source) => {
                    tracing::info!(target: "ringsmith::net", rank, %ip, %source, "cannot listen here");
                    let ports = options.ports.clone();
                    first_error.get_or_insert(LinkError::Listen { ip: *ip, ports, source });
                }
            }
        }
        match first_error {
            Some(error) if sockets.is_empty() => Err(error),
            _ => Ok(Self { sockets }),
        }
    }

    /// Where it listens, in the order of the options.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.sockets.iter().map(|(_, address)| *address).collect()
    }

    /// The sockets, for `poll`.
    pub(crate) fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sockets.iter().map(|(socket, _)| socket.as_fd())
    }

    /// Takes a waiting connection, if there is one.
    pub(crate) fn accept(&self) -> Option<OwnedFd> {
        for (socket, address) in &self.sockets {
            loop {
                match accept_with(socket, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                    Ok(accepted) => return Some(accepted),
                    // The caller of that connection has hung up already, or a signal came.
                    Err(Errno::INTR | Errno::CONNABORTED | Errno::PROTO) => {}
                    Err(Errno::AGAIN) => break,
                    Err(errno) => {
                        // Out of descriptors or memory: the connection stays in the queue.
                        tracing::warn!(target: "ringsmith::net", %address, %errno, "cannot take a connection");
                        break;
                    }
                }
            }
        }
        None
    }
}

fn listen_on(ip: IpAddr, options: &Options) -> Result<(OwnedFd, SocketAddr), Errno> {
    let mut failed = Errno::ADDRINUSE;
    for port in options.ports.clone().unwrap_or(0..=0) {
        match listen_at(SocketAddr::new(ip, port), options) {
            Ok(socket) => return Ok(socket),
            Err(errno) => failed = errno,
        }
        // Another port helps only where this one is taken or forbidden.
        if !matches!(failed, Errno::ADDRINUSE | Errno::ACCESS) {
            break;
        }
    }
    Err(failed)
}

fn listen_at(address: SocketAddr, options: &Options) -> Result<(OwnedFd, SocketAddr), Errno> {
    let socket = open(address, options)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &address)?;
    listen(&socket, BACKLOG)?;
    let bound = SocketAddr::try_from(getsockname(&socket)?).map_err(|_| Errno::AFNOSUPPORT)?;
    Ok((socket, bound))
}

/// Opens a nonblocking TCP socket for the family of `address`. Buffers are set before it is connected
/// or listens, since the window's scale is agreed then.
pub(crate) fn open(address: SocketAddr, options: &Options) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::STREAM, flags, Some(rustix::net::ipproto::TCP))?;
    if let Some(bytes) = options.socket_buffer_bytes {
        sockopt::set_socket_send_buffer_size(&socket, bytes)?;
        sockopt::set_socket_recv_buffer_size(&socket, bytes)?;
    }
    Ok(socket)
}

/// Sets what a connected socket needs to carry links.
pub(crate) fn tune(socket: impl AsFd) -> Result<(), Errno> {
    let socket = socket.as_fd();
    let (idle, between, probes) = KEEPALIVE;
    sockopt::set_tcp_nodelay(socket, true)?;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, idle)?;
    sockopt::set_tcp_keepintvl(socket, between)?;
    sockopt::set_tcp_keepcnt(socket, probes)
}
