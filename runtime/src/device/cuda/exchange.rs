//! Messages between ranks whose sizes only the call knows: what launches of the exchange kernel bring.
//!
//! Pure: it gets addresses and touches none of them. Sorting is what keeps launches from waiting for each
//! other for ever: see `ringsmith_compiler::emit::Exchange`.

use super::GpuError;
use super::layout::Layout;
use ringsmith_compiler::emit::Exchange;
use std::collections::BTreeMap;

/// A message as one of its ends sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// The rank at the other end.
    pub peer: u32,
    /// Where it is read or written, on this rank's GPU.
    pub address: u64,
    /// Its length.
    pub bytes: u64,
}

/// What a rank exchanges in a call. Messages of a pair match in the order in which each end lists them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lists {
    /// Messages to others, and to itself.
    pub sends: Vec<Message>,
    /// Messages from others, and from itself.
    pub receives: Vec<Message>,
}

/// The words of a launch's argument, and its thread blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// `struct Launch` of the template.
    pub words: Vec<u64>,
    /// Thread blocks of the rank that has most.
    pub blocks: u32,
}

/// What launches of one communicator have in common.
#[derive(Clone, Copy)]
pub struct Ends<'a> {
    /// Where everything lies in a rank's scratch.
    pub layout: &'a Layout,
    /// The start of each rank's scratch.
    pub scratch: &'a [u64],
    /// The abort word.
    pub abort: u64,
    /// The launched ranks' words for what their blocks wait for.
    pub reports: u64,
    /// The most thread blocks of a rank that run side by side.
    pub most_blocks: u32,
}

/// Words of `struct Rank` and of `struct Message`.
const RANK_WORDS: usize = 6;
const MESSAGE_WORDS: usize = 8;

/// A message in its list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Item {
    Copy { from: u64, to: u64, bytes: u64 },
    Send(Message),
    Receive(Message),
}

/// What a rank does in one launch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Part {
    copies: Vec<Item>,
    sends: Vec<Item>,
    receives: Vec<Item>,
}

impl Part {
    fn len(&self) -> usize {
        self.copies.len() + self.sends.len() + self.receives.len()
    }
}

/// The call of a rank whose peers are in other processes, cut into launches of at most `most` messages.
///
/// Errors: `Argument` where a rank's messages to itself do not match.
pub fn apart(rank: u32, ranks: u32, lists: &Lists, most: u32) -> Result<Vec<Parts>, GpuError> {
    let mut all: Vec<((usize, u32), Item)> = Vec::new();
    let far = |from: u32, to: u32| (to + ranks - from) % ranks;
    let mut add = |messages: &[Message], item: fn(Message) -> Item, far: &dyn Fn(u32) -> u32| {
        let mut earlier: BTreeMap<u32, usize> = BTreeMap::new();
        for message in messages.iter().filter(|m| m.peer != rank) {
            let place = earlier.entry(message.peer).or_default();
            all.push(((*place, far(message.peer)), item(*message)));
            *place += 1;
        }
    };
    add(&lists.sends, Item::Send, &|peer| far(rank, peer));
    add(&lists.receives, Item::Receive, &|peer| far(peer, rank));
    all.sort_by_key(|(key, _)| *key);
    let mut launches = vec![Part::default()];
    let own = |messages: &[Message]| messages.iter().filter(|m| m.peer == rank).copied().collect::<Vec<_>>();
    for copy in matched((rank, &own(&lists.sends)), (rank, &own(&lists.receives)))? {
        room(&mut launches, 1, most).copies.push(copy);
    }
    // A rank sends and receives at most one message of a key: those two stay together, or every rank might
    // wait in one launch for what the others send in their next.
    for together in all.chunk_by(|(one, _), (other, _)| one == other) {
        let part = room(&mut launches, together.len(), most);
        for (_, item) in together {
            if matches!(item, Item::Send(_)) { part.sends.push(*item) } else { part.receives.push(*item) }
        }
    }
    Ok(launches.into_iter().filter(|part| part.len() > 0).map(|part| Parts(vec![part])).collect())
}

/// The last launch, if it has room for `more` messages; else a new one.
fn room(launches: &mut Vec<Part>, more: usize, most: u32) -> &mut Part {
    if launches.last().is_none_or(|last| last.len() + more > most as usize) {
        launches.push(Part::default());
    }
    launches.last_mut().expect("there is one now")
}

/// The calls of all ranks, which this process launches together: every message is a copy.
///
/// Errors: `Argument` where messages do not match.
pub fn together(lists: &[Lists], most: u32) -> Result<Vec<Parts>, GpuError> {
    let of_pair = |messages: &[Message], peer: u32| {
        messages.iter().filter(|m| m.peer == peer).copied().collect::<Vec<_>>()
    };
    let mut launches: Vec<Parts> = Vec::new();
    let mut count = most as usize;
    for (to, receiver) in (0u32..).zip(lists) {
        for (from, sender) in (0u32..).zip(lists) {
            let (sends, receives) = (of_pair(&sender.sends, to), of_pair(&receiver.receives, from));
            for copy in matched((from, &sends), (to, &receives))? {
                if count == most as usize {
                    launches.push(Parts(vec![Part::default(); lists.len()]));
                    count = 0;
                }
                let last = launches.last_mut().expect("there is one now");
                last.0[to as usize].copies.push(copy);
                count += 1;
            }
        }
    }
    Ok(launches)
}

/// Messages of a pair whose both ends are known, as copies.
fn matched(
    (from, sends): (u32, &[Message]),
    (to, receives): (u32, &[Message]),
) -> Result<Vec<Item>, GpuError> {
    let refuse = |text: String| Err(GpuError::Argument(text));
    if sends.len() != receives.len() {
        return refuse(format!(
            "rank {from} sends rank {to} {} messages, of which rank {to} receives {}",
            sends.len(),
            receives.len()
        ));
    }
    let unlike = sends.iter().zip(receives).find(|(send, receive)| send.bytes != receive.bytes);
    if let Some((send, receive)) = unlike {
        return refuse(format!(
            "rank {from} sends rank {to} {} bytes where rank {to} receives {}",
            send.bytes, receive.bytes
        ));
    }
    let copy = |(send, receive): (&Message, &Message)| Item::Copy {
        from: send.address,
        to: receive.address,
        bytes: send.bytes,
    };
    Ok(sends.iter().zip(receives).map(copy).collect())
}

/// What the ranks of one launch do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts(Vec<Part>);

impl Parts {
    /// Messages of the launch.
    pub fn messages(&self) -> usize {
        self.0.iter().map(Part::len).sum()
    }

    /// All addresses, or-ed: how they are aligned. With `lengths`, those of the messages too.
    pub fn alignment(&self, lengths: bool) -> u64 {
        let items = self.0.iter().flat_map(|p| p.copies.iter().chain(&p.sends).chain(&p.receives));
        items.fold(0, |bits, item| match item {
            Item::Copy { from, to, bytes } => bits | from | to | if lengths { *bytes } else { 0 },
            Item::Send(m) | Item::Receive(m) => bits | m.address | if lengths { m.bytes } else { 0 },
        })
    }

    /// The launch, for the ranks from `first` on.
    ///
    /// Errors: `Plan` where a rank has no room for a block that sends beside one that receives.
    pub fn launch(&self, kernel: &Exchange, ends: &Ends<'_>, first: u32) -> Result<Launch, GpuError> {
        let mut ranks = vec![ends.abort];
        let mut messages = Vec::new();
        let mut widest = 0;
        let report_bytes = 8 * u64::from(ends.layout.geometry().max_blocks);
        for (place, (rank, part)) in (0u64..).zip((first..).zip(&self.0)) {
            let fifos = |item: &Item| tiles(item, kernel).min(u64::from(kernel.fifos));
            let all = |items: &[Item]| items.iter().map(|i| tiles(i, kernel)).fold(0, u64::saturating_add);
            let (sent, received) = (firsts(&part.sends, fifos), firsts(&part.receives, fifos));
            let copied = all(&part.copies);
            let sending = Work { tiles: copied.saturating_add(all(&part.sends)), blocks: copied.max(sent.1) };
            let receiving = Work { tiles: all(&part.receives), blocks: received.1 };
            let [sends, receives] = split(sending, receiving, ends.most_blocks)?;
            widest = widest.max(sends + receives);
            let mut words = [0u32; 2 * (RANK_WORDS - 1)];
            let lists = [
                (&part.copies, (Vec::new(), 0), sends),
                (&part.sends, sent, sends),
                (&part.receives, received, receives),
            ];
            for (list, (items, (first, _), blocks)) in lists.into_iter().enumerate() {
                let start = (messages.len() / MESSAGE_WORDS) as u32;
                words[3 * list..3 * list + 3].copy_from_slice(&[start, start + items.len() as u32, blocks]);
                let mut tile = 0;
                for (at, item) in items.iter().enumerate() {
                    let before = first.get(at).copied().unwrap_or(tile);
                    tile += tiles(item, kernel);
                    let block = (before % u64::from(blocks.max(1))) as u32;
                    messages.extend(message(item, ends, rank, block));
                }
            }
            ranks.push(ends.reports + place * report_bytes);
            ranks.extend(words.chunks_exact(2).map(|pair| u64::from(pair[0]) | u64::from(pair[1]) << 32));
        }
        messages.resize(kernel.messages as usize * MESSAGE_WORDS, 0);
        ranks.extend(messages);
        Ok(Launch { words: ranks, blocks: widest })
    }
}

/// Tiles of a message; an empty one has one, which is empty.
fn tiles(item: &Item, kernel: &Exchange) -> u64 {
    let bytes = match item {
        Item::Copy { bytes, .. } => *bytes,
        Item::Send(message) | Item::Receive(message) => message.bytes,
    };
    bytes.div_ceil(kernel.tile_bytes).max(1)
}

/// Where the FIFOs of each message's pair begin among those of all pairs of a list, and how many there are.
/// Messages of a pair have the same, so that one block takes them one after the other.
fn firsts(items: &[Item], fifos: impl Fn(&Item) -> u64) -> (Vec<u64>, u64) {
    let peer = |item: &Item| match item {
        Item::Send(message) | Item::Receive(message) => message.peer,
        Item::Copy { .. } => u32::MAX,
    };
    let mut most: BTreeMap<u32, u64> = BTreeMap::new();
    for item in items {
        let entry = most.entry(peer(item)).or_default();
        *entry = fifos(item).max(*entry);
    }
    let mut start: BTreeMap<u32, u64> = BTreeMap::new();
    let mut end = 0;
    let place = |item: &Item| {
        *start.entry(peer(item)).or_insert_with(|| {
            let first = end;
            end += most[&peer(item)];
            first
        })
    };
    let firsts = items.iter().map(place).collect();
    (firsts, end)
}

/// What has thread blocks of its own.
#[derive(Clone, Copy, Debug)]
struct Work {
    /// Tiles in all.
    tiles: u64,
    /// The most blocks that have something to do.
    blocks: u64,
}

/// Thread blocks for two kinds of work, of which each needs its own: by their tiles, as far as they can use them.
fn split(one: Work, other: Work, most: u32) -> Result<[u32; 2], GpuError> {
    let kinds = u32::from(one.blocks > 0) + u32::from(other.blocks > 0);
    if most < kinds {
        return Err(GpuError::Plan(format!(
            "an exchange needs {kinds} blocks of a rank side by side; there is room for {most}"
        )));
    }
    let capped = |work: Work| work.blocks.min(u64::from(most)) as u32;
    let (first, second) = (capped(one), capped(other));
    if first + second <= most {
        return Ok([first, second]);
    }
    let all = u128::from(one.tiles) + u128::from(other.tiles);
    let share = (u128::from(most) * u128::from(one.tiles) / all) as u32;
    // Each has one, and neither more than it can use.
    let share = share.clamp(1.max(most - second), first.min(most - 1));
    Ok([share, most - share])
}

fn message(item: &Item, ends: &Ends<'_>, rank: u32, first: u32) -> [u64; MESSAGE_WORDS] {
    let end = |pair, sends| ends.layout.end(ends.scratch, pair, 0, sends);
    let (end, from, to, bytes, number) = match *item {
        Item::Copy { from, to, bytes } => ([0; 4], from, to, bytes, 2 * rank),
        Item::Send(m) => (end((rank, m.peer), true), m.address, 0, m.bytes, 2 * m.peer),
        Item::Receive(m) => (end((m.peer, rank), false), 0, m.address, m.bytes, 2 * m.peer + 1),
    };
    let mut words = [0; MESSAGE_WORDS];
    words[..4].copy_from_slice(&end);
    words[4..].copy_from_slice(&[from, to, bytes, u64::from(first) | u64::from(number) << 32]);
    words
}

/// What a block of the exchange kernel has left in its word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// It waits: for room at the peer, or for the peer's message.
    Waits {
        /// The rank waited for.
        peer: u32,
        /// Whether for its message.
        receives: bool,
    },
    /// The peer has sent a message of another size than this rank receives.
    Size {
        /// The sender.
        peer: u32,
        /// What it has sent, in bytes, up to 2^48 - 1.
        found: u64,
    },
}

impl Report {
    /// From a block's word; `None` if it has said nothing.
    pub fn of(word: u64) -> Option<Self> {
        if word >> 63 == 1 {
            return Some(Self::Size { peer: (word >> 49 & 0x3fff) as u32, found: word & ((1 << 48) - 1) });
        }
        let number = word.checked_sub(1)?;
        Some(Self::Waits { peer: (number >> 1) as u32, receives: number & 1 == 1 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(peer: u32, bytes: u64) -> Message {
        Message { peer, address: 0x1000 + bytes, bytes }
    }

    fn kernel() -> Exchange {
        let (name, source) = (String::new(), String::new());
        Exchange { name, source, threads: 32, tile_bytes: 512, fifos: 4, messages: 6 }
    }

    #[test]
    fn a_send_and_a_receive_of_one_key_share_a_launch() {
        // In a ring of three, every launch that waits for a message must also send the one that is waited for.
        for most in 2..8 {
            let lists = Lists {
                sends: vec![message(2, 1), message(1, 2), message(1, 3), message(2, 4)],
                receives: vec![message(1, 5), message(2, 6), message(2, 7), message(1, 8)],
            };
            let launches = apart(0, 3, &lists, most).expect("they are good");
            let keys: Vec<usize> = launches.iter().map(|l| l.0[0].sends.len()).collect();
            assert!(launches.iter().all(|l| l.0[0].sends.len() == l.0[0].receives.len()), "{keys:?}");
            assert!(launches.iter().all(|l| l.messages() <= most as usize));
            assert_eq!(keys.iter().sum::<usize>(), 4);
            let sent = launches.iter().flat_map(|l| &l.0[0].sends).map(|item| match item {
                Item::Send(message) => (message.peer, message.bytes),
                other => panic!("{other:?} among sends"),
            });
            // The nearer receiver first; the second message of a pair after all first ones.
            assert_eq!(sent.collect::<Vec<_>>(), [(1, 2), (2, 1), (1, 3), (2, 4)]);
        }
    }

    #[test]
    fn messages_to_oneself_are_copies_and_must_match() {
        let mut lists = Lists { sends: vec![message(0, 9)], receives: vec![message(0, 9)] };
        let launches = apart(0, 2, &lists, 4).expect("they match");
        assert_eq!(launches.len(), 1);
        assert_eq!(launches[0].0[0].copies.len(), 1);
        lists.receives[0].bytes = 8;
        let error = apart(0, 2, &lists, 4).unwrap_err().to_string();
        assert_eq!(error, "rank 0 sends rank 0 9 bytes where rank 0 receives 8");
        lists.receives.clear();
        let error = apart(0, 2, &lists, 4).unwrap_err().to_string();
        assert_eq!(error, "rank 0 sends rank 0 1 messages, of which rank 0 receives 0");
        assert!(apart(0, 2, &Lists::default(), 4).expect("nothing is right").is_empty());
    }

    #[test]
    fn one_block_has_a_fifo_of_all_messages_of_its_pair() {
        let messages =
            [message(1, 3000), message(2, 0), message(1, 10), message(2, 512), message(3, 1 << 40)];
        let items = messages.map(Item::Send);
        let fifos = |item: &Item| tiles(item, &kernel()).min(4);
        assert_eq!(firsts(&items, fifos), (vec![0, 4, 0, 4, 5], 9));
    }

    #[test]
    fn blocks_are_shared_by_work_and_each_side_has_one() {
        let work = |tiles, blocks| Work { tiles, blocks };
        assert_eq!(split(work(3, 3), work(5, 5), 8), Ok([3, 5]));
        assert_eq!(split(work(3, 3), work(0, 0), 2), Ok([2, 0]));
        assert_eq!(split(work(u64::MAX, 66), work(1, 1), 8), Ok([7, 1]));
        assert_eq!(split(work(1, 1), work(u64::MAX, 66), 8), Ok([1, 7]));
        // Copies can use any number of blocks, and must not starve what is received.
        assert_eq!(split(work(4000, 2000), work(2000, 66), 132), Ok([88, 44]));
        assert_eq!(split(work(2000, 2000), work(4000, 66), 132), Ok([66, 66]));
        assert_eq!(split(work(0, 0), work(0, 0), 0), Ok([0, 0]));
        assert!(split(work(1, 1), work(1, 1), 1).is_err());
    }

    #[test]
    fn blocks_say_where_they_wait_and_what_they_found() {
        assert_eq!(Report::of(0), None);
        assert_eq!(Report::of(2 * 5 + 1), Some(Report::Waits { peer: 5, receives: false }));
        assert_eq!(Report::of(2 * 5 + 2), Some(Report::Waits { peer: 5, receives: true }));
        let word = 1 << 63 | (2 * 7 + 1) << 48 | 4096;
        assert_eq!(Report::of(word), Some(Report::Size { peer: 7, found: 4096 }));
    }
}
