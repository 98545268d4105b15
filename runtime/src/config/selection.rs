//! What lists of algorithms and protocols leave to a planner, on whatever device it plans for.
//!
//! One rule for both lists. A collective's own list counts as it stands, and may leave nothing: then calls are
//! refused. The general list counts too, unless it names only things that the collective has not: then it was
//! written with others in mind, is not applied there, and a warning says so.

use super::Config;
use super::grammar::NameFilter;
use ringsmith_compiler::plan::Filter;
use ringsmith_ir::schedule::Protocol;
use ringsmith_ir::types::Collective;

/// What is exchanged message by message, without a plan that could be chosen.
pub const EXCHANGED: [Collective; 2] = [Collective::SendRecv, Collective::AllToAllV];

/// The lists of a communicator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    algorithms: Option<NameFilter>,
    protocols: Option<NameFilter>,
}

/// What a list leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// The names that may be chosen.
    pub filter: Filter,
    /// That the list is not applied, in words, where it is about others.
    pub not_applied: Option<String>,
}

impl Left {
    /// The filter, once it has been said where the list is not applied.
    pub fn told(self) -> Filter {
        if let Some(not_applied) = self.not_applied {
            tracing::warn!(target: "ringsmith::tuning", "{not_applied}");
        }
        self.filter
    }
}

impl From<Filter> for Left {
    fn from(filter: Filter) -> Self {
        Self { filter, not_applied: None }
    }
}

impl Selection {
    /// What the settings say.
    pub fn of(config: &Config) -> Self {
        Self { algorithms: config.algorithms.clone(), protocols: config.protocols.clone() }
    }

    /// The algorithms of a collective that may be chosen. `names` are those of each that there is, its own first.
    pub fn algorithms(&self, collective: Collective, names: &[Vec<&'static str>]) -> Left {
        filter(("RINGSMITH_ALGO", "algorithm"), self.algorithms.as_ref(), collective, names)
    }

    /// Says what of the lists is not about messages between pairs, which have no algorithm and one protocol: those of
    /// send_recv and all_to_all_v. Lists of their own that leave that one out are refused with the settings.
    pub fn tell_exchange(&self) {
        if let Some(warning) = self.not_of_exchanges() {
            tracing::warn!(target: "ringsmith::tuning", "{warning}");
        }
    }

    fn not_of_exchanges(&self) -> Option<String> {
        let (list, simple) = (self.protocols.as_ref()?, Protocol::Simple.name());
        let left_out = EXCHANGED.into_iter().any(|collective| !list.permits(collective.name(), simple));
        let what = EXCHANGED.map(Collective::name).join(" and ");
        left_out.then(|| {
            format!("RINGSMITH_PROTO={list} is not applied to {what}, whose messages go over {simple} alone")
        })
    }

    /// The protocols that may be chosen among those that a collective's algorithms have.
    pub fn protocols(&self, collective: Collective, all: impl IntoIterator<Item = Protocol>) -> Left {
        let mut names: Vec<Vec<&'static str>> = all.into_iter().map(|p| vec![p.name()]).collect();
        names.sort_unstable();
        names.dedup();
        filter(("RINGSMITH_PROTO", "protocol"), self.protocols.as_ref(), collective, &names)
    }
}

fn filter(
    (setting, kind): (&str, &str),
    list: Option<&NameFilter>,
    collective: Collective,
    names: &[Vec<&'static str>],
) -> Left {
    let Some(list) = list else { return Filter::Any.into() };
    let permits = |all: &&Vec<&str>| all.iter().any(|n| list.permits(collective.name(), n));
    let own_names = |chosen: &mut dyn Iterator<Item = &Vec<&'static str>>| -> Vec<String> {
        chosen.map(|all| all[0].to_owned()).collect()
    };
    let permitted = own_names(&mut names.iter().filter(permits));
    if permitted.len() == names.len() {
        return Filter::Any.into();
    }
    if !permitted.is_empty() {
        return Filter::Only(permitted).into();
    }
    let all = names.concat();
    if list.names_others(collective.name(), &all) {
        let there_are = all.join(", ");
        let not_applied = format!(
            "{setting}={list} names no {kind} of {collective} ({there_are}): it is not applied there"
        );
        return Left { filter: Filter::Any, not_applied: Some(not_applied) };
    }
    Filter::Except(own_names(&mut names.iter())).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selection(algorithms: &str, protocols: &str) -> Selection {
        let vars = [("NCCL_ALGO", algorithms), ("NCCL_PROTO", protocols)];
        let vars = vars.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Selection::of(&Config::from_vars(vars).expect("the lists are right").0)
    }

    #[test]
    fn a_list_for_others_is_not_applied_and_the_warning_names_its_own_variable() {
        let selection = selection("tree", "ll");
        let protocols = selection.protocols(Collective::Broadcast, [Protocol::Simple]);
        assert_eq!(protocols.filter, Filter::Any);
        assert_eq!(
            protocols.not_applied.expect("it is said"),
            "RINGSMITH_PROTO=ll names no protocol of broadcast (simple): it is not applied there"
        );
        let names = [vec!["direct"], vec!["chain", "ring"]];
        let algorithms = selection.algorithms(Collective::Broadcast, &names);
        assert_eq!(algorithms.filter, Filter::Any);
        assert_eq!(
            algorithms.not_applied.expect("it is said"),
            "RINGSMITH_ALGO=tree names no algorithm of broadcast (direct, chain, ring): it is not applied there"
        );
    }

    #[test]
    fn messages_between_pairs_go_over_simple_whatever_the_general_lists_say() {
        assert_eq!(selection("ring", "^ll").not_of_exchanges(), None);
        assert_eq!(selection("ring", "ll;send_recv:simple;all_to_all_v:simple").not_of_exchanges(), None);
        assert_eq!(
            selection("ring", "ll").not_of_exchanges().expect("it is said"),
            "RINGSMITH_PROTO=ll is not applied to send_recv and all_to_all_v, whose messages go over simple alone"
        );
    }

    #[test]
    fn a_list_that_is_about_a_collective_may_leave_nothing() {
        let simple = || [Protocol::Simple, Protocol::Simple];
        let own = selection("broadcast:tree", "broadcast:ll");
        let none = Filter::Except(vec!["simple".to_owned()]);
        assert_eq!(own.protocols(Collective::Broadcast, simple()), none.clone().into());
        assert_eq!(own.protocols(Collective::Reduce, simple()), Filter::Any.into());
        let names = [vec!["direct"], vec!["chain", "ring"]];
        let all = Filter::Except(vec!["direct".to_owned(), "chain".to_owned()]);
        assert_eq!(own.algorithms(Collective::Broadcast, &names), all.into());
        assert_eq!(selection("ring", "^simple").protocols(Collective::Broadcast, simple()), none.into());
        let rings = selection("ring", "ll").algorithms(Collective::Broadcast, &names);
        assert_eq!(rings, Filter::Only(vec!["chain".to_owned()]).into());
        assert_eq!(Selection::default().algorithms(Collective::Broadcast, &names), Filter::Any.into());
    }
}
