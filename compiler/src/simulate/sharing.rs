//! How ops at work share resources.
//!
//! An op that works alone takes the time of its scarcest resource, and of every other one a part. Where
//! more is wanted than there is, everybody on that resource is slowed to the same fraction of the speed
//! they would have alone, and what that frees elsewhere goes to others: max-min fair, by filling.
//! Only what is joined to a change through resources that are short is looked at again.

/// What an op at work is like.
#[derive(Clone, Debug, Default)]
struct Flow {
    /// Which part of each resource it takes at full speed.
    wants: Vec<(usize, f64)>,
    /// How long it would take from `since` on at full speed.
    left_ns: f64,
    since_ns: f64,
    /// 0 while it does not work.
    speed: f64,
    /// Grows with each change of speed, so that an end that was foretold before is known to be stale.
    version: u32,
    /// What slows it, or else what it takes all of.
    limit: Option<usize>,
    /// What it takes all of if it works alone.
    scarcest: Option<usize>,
}

/// When a lane's op will end, as things stand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct End {
    pub(super) lane: usize,
    pub(super) version: u32,
    pub(super) at_ns: f64,
}

/// Resources, and the op that each lane has at work.
pub(super) struct Sharing {
    flows: Vec<Flow>,
    /// Lanes at work on each resource.
    users: Vec<Vec<usize>>,
    /// Marks of the last search.
    seen: Vec<bool>,
}

/// Sums of parts are this exact.
const EXACT: f64 = 1e-9;

impl Sharing {
    pub(super) fn new(lanes: usize, resources: usize) -> Self {
        Self {
            flows: vec![Flow::default(); lanes],
            users: vec![Vec::new(); resources],
            seen: vec![false; lanes],
        }
    }

    /// Whether a foretold end has come true.
    pub(super) fn is_current(&self, end: &End) -> bool {
        let flow = &self.flows[end.lane];
        flow.speed > 0.0 && flow.version == end.version
    }

    /// What limits the op that a lane has at work.
    pub(super) fn limit(&self, lane: usize) -> Option<usize> {
        self.flows[lane].limit
    }

    /// A lane begins to work: `wants` are parts of resources, `alone_ns` what it takes at full speed.
    pub(super) fn begin(
        &mut self,
        lane: usize,
        wants: impl Iterator<Item = (usize, f64)>,
        alone_ns: f64,
        now_ns: f64,
        ends: &mut Vec<End>,
    ) {
        let flow = &mut self.flows[lane];
        flow.wants.clear();
        flow.wants.extend(wants);
        (flow.left_ns, flow.since_ns, flow.speed) = (alone_ns, now_ns, 0.0);
        let scarcest = flow.wants.iter().copied().reduce(|a, b| if b.1 > a.1 { b } else { a });
        flow.scarcest = scarcest.map(|(resource, _)| resource);
        for at in 0..self.flows[lane].wants.len() {
            self.users[self.flows[lane].wants[at].0].push(lane);
        }
        self.share(lane, true, now_ns, ends);
    }

    /// A lane's op is over.
    pub(super) fn end(&mut self, lane: usize, now_ns: f64, ends: &mut Vec<End>) {
        for at in 0..self.flows[lane].wants.len() {
            self.users[self.flows[lane].wants[at].0].retain(|user| *user != lane);
        }
        self.share(lane, false, now_ns, ends);
        self.flows[lane].speed = 0.0;
    }

    fn wanted(&self, resource: usize) -> f64 {
        let of = |lane: &usize| self.flows[*lane].wants.iter().find(|want| want.0 == resource);
        self.users[resource].iter().filter_map(of).map(|want| want.1).sum()
    }

    /// Finds new speeds for whom a change of `changed` may concern.
    fn share(&mut self, changed: usize, works: bool, now_ns: f64, ends: &mut Vec<End>) {
        // Lanes, and resources that are short, reached from the change through such resources.
        let (mut lanes, mut short) = (vec![changed], Vec::<(usize, f64)>::new());
        let mut known: Vec<usize> = Vec::new();
        self.seen[changed] = true;
        let mut next = 0;
        while next < lanes.len() {
            for at in 0..self.flows[lanes[next]].wants.len() {
                let resource = self.flows[lanes[next]].wants[at].0;
                if known.contains(&resource) {
                    continue;
                }
                known.push(resource);
                let is_slow = |lane: &usize| *lane != changed && self.flows[*lane].speed < 1.0;
                let wanted = self.wanted(resource);
                if wanted > 1.0 + EXACT {
                    short.push((resource, 1.0));
                } else if !self.users[resource].iter().any(is_slow) {
                    continue;
                }
                for &user in &self.users[resource] {
                    if !std::mem::replace(&mut self.seen[user], true) {
                        lanes.push(user);
                    }
                }
            }
            next += 1;
        }
        lanes.iter().for_each(|lane| self.seen[*lane] = false);
        let first = usize::from(!works);
        let mut open: Vec<usize> = lanes.split_off(first);
        let mut speeds: Vec<(usize, f64, Option<usize>)> = Vec::with_capacity(open.len());
        while !open.is_empty() {
            let part = |lane: usize, resource: usize| {
                self.flows[lane].wants.iter().find(|want| want.0 == resource).map_or(0.0, |want| want.1)
            };
            let fill = |&(resource, left): &(usize, f64)| {
                let wanted: f64 = open.iter().map(|lane| part(*lane, resource)).sum();
                (if wanted > 0.0 { left / wanted } else { f64::INFINITY }, resource)
            };
            let scarcest = short.iter().map(fill).min_by(|a, b| a.0.total_cmp(&b.0));
            let Some((level, resource)) = scarcest.filter(|(level, _)| *level < 1.0) else {
                speeds.extend(open.drain(..).map(|lane| (lane, 1.0, None)));
                break;
            };
            let (held, rest): (Vec<usize>, Vec<usize>) =
                open.iter().partition(|lane| part(**lane, resource) > 0.0);
            for (resource, left) in &mut short {
                let taken: f64 = held.iter().map(|lane| part(*lane, *resource)).sum();
                *left = (*left - taken * level).max(0.0);
            }
            speeds.extend(held.into_iter().map(|lane| (lane, level.max(EXACT), Some(resource))));
            open = rest;
        }
        for (lane, speed, slowed_by) in speeds {
            let flow = &mut self.flows[lane];
            flow.limit = slowed_by.or(flow.scarcest);
            if flow.speed == speed {
                continue;
            }
            flow.left_ns = (flow.left_ns - (now_ns - flow.since_ns) * flow.speed).max(0.0);
            (flow.since_ns, flow.speed) = (now_ns, speed);
            flow.version = flow.version.wrapping_add(1);
            ends.push(End { lane, version: flow.version, at_ns: now_ns + flow.left_ns / speed });
        }
    }
}
