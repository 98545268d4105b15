//! Which of this host's addresses the other ranks should try, and the root's listening socket.
//!
//! The order is decided by addresses and names alone: ordinary interfaces, then those of containers
//! and tunnels, then link-local ones, loopback last. Whether an address can be reached is found out
//! by the ranks, which try all that an id holds.

use crate::config::Config;
use crate::config::grammar::{HostPort, InterfaceFilter, PortRange};
use crate::error::{Error, Result};
use crate::unique_id::MAX_ADDRESSES;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};

/// Connections that may wait to be accepted. Thousands of ranks start at the same moment; the
/// system lowers it to net.core.somaxconn.
const BACKLOG: i32 = 4096;

/// Beginnings of names of interfaces made for containers, virtual machines and tunnels. They exist
/// on every host with the same addresses, so they lead nowhere or to the wrong place.
const VIRTUAL: &[&str] = &[
    "docker",
    "veth",
    "br-",
    "virbr",
    "vnet",
    "lxc",
    "lxdbr",
    "podman",
    "cni",
    "flannel",
    "cali",
    "cilium",
    "weave",
    "kube-ipvs",
    "nodelocaldns",
    "pod-id-link",
    "ip6tnl",
    "sit",
    "gre",
    "tun",
    "tap",
    "wg",
    "dummy",
    "ifb",
];

/// One address of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The interface's name.
    pub name: String,
    /// Its address.
    pub address: IpAddr,
}

/// How likely it is that other ranks reach an address; likelier first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Likelihood {
    Ordinary,
    /// Some networks announce an address that sits on the loopback interface.
    RoutableOnLoopback,
    Virtual,
    LinkLocal,
    Loopback,
}

fn likelihood(interface: &Interface) -> Option<Likelihood> {
    let name = interface.name.as_str();
    match interface.address {
        ip if ip.is_unspecified() || ip.is_multicast() => None,
        ip if ip.is_loopback() => Some(Likelihood::Loopback),
        // Needs the sender's own interface number beside it, which an id cannot know.
        IpAddr::V6(v6) if v6.is_unicast_link_local() => None,
        IpAddr::V4(v4) if v4.is_link_local() => Some(Likelihood::LinkLocal),
        _ if name == "lo" => Some(Likelihood::RoutableOnLoopback),
        _ if VIRTUAL.iter().any(|prefix| name.starts_with(prefix)) => Some(Likelihood::Virtual),
        _ => Some(Likelihood::Ordinary),
    }
}

/// The interfaces that the filter allows, the likeliest to be reached first.
///
/// A list of interfaces decides the order itself. Loopback is left out where anything else is left,
/// unless it was asked for.
pub fn order(interfaces: &[Interface], filter: &InterfaceFilter) -> Vec<Interface> {
    let mut kept: Vec<_> = interfaces
        .iter()
        .filter_map(|interface| {
            let likelihood = likelihood(interface)?;
            let place = match filter {
                InterfaceFilter::All => 0,
                InterfaceFilter::Only(list) => list.position(&interface.name)?,
                InterfaceFilter::Except(list) if list.position(&interface.name).is_some() => return None,
                InterfaceFilter::Except(_) => 0,
            };
            Some((place, likelihood, interface.address.is_ipv6(), interface))
        })
        .collect();
    // Stable: interfaces of one kind stay in the system's order.
    kept.sort_by_key(|&(place, likelihood, is_ipv6, _)| (place, likelihood, is_ipv6));
    if !matches!(filter, InterfaceFilter::Only(_))
        && kept.iter().any(|&(_, likelihood, ..)| likelihood != Likelihood::Loopback)
    {
        kept.retain(|&(_, likelihood, ..)| likelihood != Likelihood::Loopback);
    }
    kept.into_iter().map(|(.., interface)| interface.clone()).collect()
}

/// Every address of every interface that is up.
pub fn list() -> Result<Vec<Interface>> {
    let all = nix::ifaddrs::getifaddrs().map_err(|errno| Error::System {
        operation: "listing the network interfaces",
        source: errno.into(),
    })?;
    let up = all.filter(|interface| interface.flags.contains(nix::net::if_::InterfaceFlags::IFF_UP));
    Ok(up
        .filter_map(|interface| {
            let address = interface.address?;
            let v4 = address.as_sockaddr_in().map(|a| IpAddr::V4(a.ip()));
            let address = v4.or_else(|| address.as_sockaddr_in6().map(|a| IpAddr::V6(a.ip())))?;
            Some(Interface { name: interface.interface_name, address })
        })
        .collect())
}

/// A root's socket and the addresses under which it can be tried.
pub(crate) struct Listening {
    pub(crate) socket: TcpListener,
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) port: u16,
}

/// Opens the root's port on the interfaces that the settings allow.
pub(crate) fn listen_anywhere(config: &Config) -> Result<Listening> {
    let found = list()?;
    let mut chosen: Vec<IpAddr> = order(&found, &config.interfaces).into_iter().map(|i| i.address).collect();
    chosen.dedup();
    chosen.truncate(MAX_ADDRESSES);
    if chosen.is_empty() {
        let mut names: Vec<&str> = found.iter().map(|i| i.name.as_str()).collect();
        names.dedup();
        return Err(Error::Interface {
            detail: format!(
                "RINGSMITH_SOCKET_IFNAME={} leaves none of those that are up and have an address: {}",
                config.interfaces,
                names.join(", ")
            ),
        });
    }
    let only_loopback = chosen.iter().all(IpAddr::is_loopback);
    if only_loopback {
        // Where the socket will be bound.
        chosen = vec![Ipv4Addr::LOCALHOST.into()];
    }
    let socket = listen_on_free_port(config.port_range, |port| listen_on(port, only_loopback))?;
    let port = local_port(&socket)?;
    Ok(Listening { socket, addresses: chosen, port })
}

/// Opens the root's port for ranks of this host alone: on loopback, or on the first of the interfaces that
/// the settings list. Where loopback is down, as [`listen_anywhere`].
pub(crate) fn listen_here(config: &Config) -> Result<Listening> {
    let found = list()?;
    let address = match config.interfaces {
        InterfaceFilter::All => Some(IpAddr::from(Ipv4Addr::LOCALHOST)),
        InterfaceFilter::Only(_) | InterfaceFilter::Except(_) => {
            order(&found, &config.interfaces).first().map(|interface| interface.address)
        }
    };
    match address.filter(|address| found.iter().any(|interface| interface.address == *address)) {
        None => listen_anywhere(config),
        Some(address) => {
            let socket = listen_on_free_port(config.port_range, |port| open(SocketAddr::new(address, port)))?;
            let port = local_port(&socket)?;
            Ok(Listening { socket, addresses: vec![address], port })
        }
    }
}

/// Opens the port of a fixed address, which must be one of this host.
pub(crate) fn listen_at(address: &HostPort, resolved: &[SocketAddr]) -> Result<Listening> {
    let local = list()?;
    let is_local = |ip: IpAddr| ip.is_loopback() || local.iter().any(|interface| interface.address == ip);
    let describe = |source, remedy| Error::Listen { address: address.to_string(), remedy, source };
    if !resolved.iter().any(|address| is_local(address.ip())) {
        let source = io::Error::from(io::ErrorKind::AddrNotAvailable);
        return Err(describe(
            source,
            "it is no address of this host, and rank 0 must run where the address leads",
        ));
    }
    // A name may lead to loopback here and to the network elsewhere, so only an address that was
    // written as loopback limits the listener to it.
    let only_loopback =
        address.host == "localhost" || address.host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
    let port = address.port.get();
    let remedy = "another process has the port, or an earlier job still runs; choose another port";
    let socket = listen_on(port, only_loopback).map_err(|source| describe(source, remedy))?;
    Ok(Listening { socket, addresses: resolved.iter().map(SocketAddr::ip).collect(), port })
}

fn listen_on_free_port(
    range: Option<PortRange>,
    listen: impl Fn(u16) -> io::Result<TcpListener>,
) -> Result<TcpListener> {
    let Some(range) = range else {
        return listen(0).map_err(|source| Error::Listen {
            address: "any port".into(),
            remedy: "check the limits on sockets and open files",
            source,
        });
    };
    let mut last = io::Error::from(io::ErrorKind::AddrInUse);
    for port in range.ports() {
        match listen(port) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(Error::Listen {
        address: format!("ports {range}"),
        remedy: "all are taken or forbidden; widen RINGSMITH_PORT_RANGE",
        source: last,
    })
}

/// Listens on all addresses, or on loopback only; IPv6 and IPv4 in one socket where the system has
/// both.
fn listen_on(port: u16, only_loopback: bool) -> io::Result<TcpListener> {
    if only_loopback {
        return open(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port));
    }
    match open(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port)) {
        Err(error)
            if error.kind() != io::ErrorKind::AddrInUse
                && error.kind() != io::ErrorKind::PermissionDenied =>
        {
            open(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port))
        }
        outcome => outcome,
    }
}

fn open(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    // An earlier job's closed connections must not keep a fixed port taken. Linux still refuses a
    // second listener.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

fn local_port(socket: &TcpListener) -> Result<u16> {
    let address = socket
        .local_addr()
        .map_err(|source| Error::System { operation: "asking for the port of the root's socket", source })?;
    Ok(address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> Vec<Interface> {
        let table = [
            ("lo", "127.0.0.1"),
            ("lo", "10.9.9.9"),
            ("veth12", "fd00::7"),
            ("docker0", "172.17.0.1"),
            ("eth0", "fe80::1"),
            ("eth0", "fd00::2"),
            ("eth0", "10.0.0.2"),
            ("pod-id-link0", "169.254.170.23"),
            ("ib0", "10.1.0.2"),
            ("lo", "::1"),
        ];
        let interface = |(name, address): (&str, &str)| Interface {
            name: name.to_owned(),
            address: address.parse().expect("an address of the test"),
        };
        table.map(interface).to_vec()
    }

    fn chosen(filter: &str) -> Vec<String> {
        let filter = match filter {
            "" => InterfaceFilter::All,
            text => InterfaceFilter::parse(text).expect("a filter of the test"),
        };
        order(&host(), &filter).into_iter().map(|i| i.address.to_string()).collect()
    }

    #[test]
    fn ordinary_interfaces_come_first_and_loopback_not_at_all() {
        let all = ["10.0.0.2", "10.1.0.2", "fd00::2", "10.9.9.9", "172.17.0.1", "fd00::7", "169.254.170.23"];
        assert_eq!(chosen(""), all);
    }

    #[test]
    fn lists_select_and_exclusions_only_take_away() {
        assert_eq!(chosen("ib,eth"), ["10.1.0.2", "10.0.0.2", "fd00::2"]);
        assert_eq!(chosen("=lo"), ["10.9.9.9", "127.0.0.1", "::1"]);
        assert_eq!(chosen("=eth"), [""; 0]);
        let without_docker = chosen("^docker");
        assert!(!without_docker.iter().any(|a| a == "172.17.0.1" || a == "127.0.0.1"));
        assert_eq!(chosen("^eth,ib,veth,docker,pod"), ["10.9.9.9"]);
    }

    #[test]
    fn loopback_serves_when_there_is_nothing_else() {
        let only = [Interface { name: "lo".into(), address: IpAddr::V4(Ipv4Addr::LOCALHOST) }];
        assert_eq!(order(&only, &InterfaceFilter::All), only);
    }
}
