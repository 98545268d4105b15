//! The transports' small interfaces, filled by the runtime's own parts: the bootstrap gathers, the
//! fault word alarms, the settings become options.

use super::{Alarm, Exchange, ExchangeError, LinkFault, Options, SharedMemory};
use crate::bootstrap::{Bootstrap, interface};
use crate::config::Config;
use crate::config::grammar::InterfaceFilter;
use crate::error::Error;
use crate::fault::{Fault, Reason};

impl Exchange for Bootstrap {
    fn rank(&self) -> u32 {
        Bootstrap::rank(self)
    }

    fn world(&self) -> u32 {
        Bootstrap::world(self)
    }

    fn all_gather(&self, tag: &str, bytes: &[u8]) -> Result<Vec<Vec<u8>>, ExchangeError> {
        Bootstrap::all_gather(self, tag, bytes).map_err(Into::into)
    }
}

impl Alarm for Fault {
    fn raised(&self) -> bool {
        self.is_raised()
    }

    fn culprit(&self) -> Option<u32> {
        self.reason()?.culprit()
    }

    fn raise(&self, fault: LinkFault) {
        let (rank, detail) = match fault {
            LinkFault::PeerLost { peer, address, reason, .. } => {
                (peer, format!("{reason} (connection to {address})"))
            }
            LinkFault::Protocol { peer, address, reason, .. } => {
                (peer, format!("it broke the link protocol: {reason} (connection to {address})"))
            }
            LinkFault::Progress { rank, reason } => {
                (rank, format!("the progress thread of this rank's links stopped: {reason}"))
            }
        };
        Fault::raise(self, Reason::Transport { rank, detail });
    }
}

impl Options {
    /// What the settings say: addresses of the interfaces that they allow, and the rest as it is. Where they
    /// say nothing and no rank can be elsewhere (`on_loopback`), loopback is enough.
    ///
    /// Errors: `System` when the interfaces cannot be listed. None that is allowed is no error here:
    /// ranks of one host need none.
    pub fn from_config(config: &Config, on_loopback: bool) -> Result<Self, Error> {
        let mut interfaces = interface::list()?;
        if on_loopback && config.interfaces == InterfaceFilter::All {
            interfaces.retain(|interface| interface.address.is_loopback());
        }
        let interfaces = interface::order(&interfaces, &config.interfaces);
        // A network that is asked for by name is used on one host too: so it can be tried there.
        let shared_memory =
            if config.shm && config.net.is_none() { SharedMemory::Auto } else { SharedMemory::Off };
        Ok(Self {
            shared_memory,
            host_id: config.host_id.clone(),
            listen: interfaces
                .iter()
                .map(|interface| interface.address)
                .take(super::options::MAX_LISTEN)
                .collect(),
            ports: config.port_range.map(|range| range.first.get()..=range.last.get()),
            sockets_per_pair: config.socket_connections,
            connect_timeout: config.init_timeout,
            ..Self::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_become_options() {
        let mut config = Config::default();
        config.shm = false;
        config.host_id = Some("a".to_owned());
        config.socket_connections = 3;
        let options = Options::from_config(&config, false).expect("this machine has interfaces");
        assert_eq!(options.shared_memory, SharedMemory::Off);
        assert_eq!(options.host_id.as_deref(), Some("a"));
        assert_eq!(options.sockets_per_pair, 3);
        assert!(!options.listen.is_empty());
        let here = Options::from_config(&config, true).expect("this machine has interfaces");
        assert!(here.listen.iter().all(|address| address.is_loopback()), "{:?}", here.listen);
        options.check().expect("settings stay within the bounds of options");
    }

    #[test]
    fn a_lost_peer_breaks_the_communicator_with_its_rank() {
        let fault = Fault::new();
        let lost = LinkFault::PeerLost {
            rank: 0,
            peer: 3,
            address: "10.0.0.1:5".to_owned(),
            reason: "it closed the connection".to_owned(),
        };
        Alarm::raise(&fault, lost);
        assert!(fault.raised());
        assert!(
            matches!(fault.reason(), Some(Reason::Transport { rank: 3, detail }) if detail.contains("10.0.0.1:5"))
        );
    }
}
