//! Machine code as NVRTC gives it, and what its assembler says of each kernel in it.
//!
//! The log is kept with the code, so that a kernel from the cache knows its registers too. A log that
//! says less than expected makes fewer entries, never an error: it is advice.

use super::Architecture;

/// Machine code for one architecture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cubin {
    bytes: Vec<u8>,
    architecture: Architecture,
    log: String,
    entries: Vec<Entry>,
    /// Spill stores and loads of functions that kernels call.
    called_spill_bytes: u64,
}

/// What one kernel uses.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Entry {
    /// Its name in the code, by which it is launched.
    pub name: String,
    /// Registers of a thread.
    pub registers: u32,
    /// Barriers of a block.
    pub barriers: u32,
    /// Bytes of registers that a thread stores to memory because it has too few.
    pub spill_store_bytes: u64,
    /// Bytes that it loads back.
    pub spill_load_bytes: u64,
    /// Bytes of a thread's stack.
    pub stack_bytes: u64,
    /// Bytes of a block's shared memory, without what a launch adds.
    pub shared_bytes: u64,
}

impl Cubin {
    /// Code that was compiled elsewhere or before, with the log of its compilation.
    pub fn new(bytes: Vec<u8>, architecture: Architecture, log: String) -> Self {
        let (entries, called_spill_bytes) = read_log(&log);
        Self { bytes, architecture, log, entries, called_spill_bytes }
    }

    /// The code, as a driver loads it.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The architecture it is for.
    pub fn architecture(&self) -> Architecture {
        self.architecture
    }

    /// What compiler and assembler said, warnings included.
    pub fn log(&self) -> &str {
        &self.log
    }

    /// Every kernel in it, as far as the assembler spoke of them.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// What the kernel of this name uses.
    pub fn entry(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.name == name)
    }

    /// Bytes spilled and loaded back by all kernels and the functions they call. Code that spills is slow.
    pub fn spill_bytes(&self) -> u64 {
        let of_entries = self.entries.iter().map(|entry| entry.spill_store_bytes + entry.spill_load_bytes);
        of_entries.sum::<u64>() + self.called_spill_bytes
    }
}

/// Reads what `--ptxas-options=-v` prints: kernels, and what the functions they call spill.
fn read_log(log: &str) -> (Vec<Entry>, u64) {
    let mut entries: Vec<Entry> = Vec::new();
    let mut called_spill_bytes = 0;
    let mut function = "";
    for line in log.lines() {
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            let name = rest.split('\'').next().unwrap_or_default();
            entries.push(Entry { name: name.to_owned(), ..Entry::default() });
        } else if let Some((_, name)) = line.split_once("Function properties for ") {
            function = name.trim();
        } else if let Some(stack_bytes) = number_before(line, " bytes stack frame") {
            let spill_store_bytes = number_before(line, " bytes spill stores").unwrap_or(0);
            let spill_load_bytes = number_before(line, " bytes spill loads").unwrap_or(0);
            match entries.last_mut().filter(|entry| entry.name == function) {
                Some(entry) => {
                    *entry = Entry { stack_bytes, spill_store_bytes, spill_load_bytes, ..entry.clone() };
                }
                None => called_spill_bytes += spill_store_bytes + spill_load_bytes,
            }
        } else if let (Some(registers), Some(entry)) = (number_before(line, " registers"), entries.last_mut())
        {
            entry.registers = registers as u32;
            entry.barriers = number_before(line, " barriers").unwrap_or(0) as u32;
            entry.shared_bytes = number_before(line, " bytes smem").unwrap_or(0);
            // The stack of the functions that it calls, too.
            if let Some(whole) = number_before(line, " bytes cumulative stack size") {
                entry.stack_bytes = whole;
            }
        }
    }
    (entries, called_spill_bytes)
}

/// The number that stands right before a word. Numbers that no kernel can have are none.
fn number_before(line: &str, word: &str) -> Option<u64> {
    let before = &line[..line.find(word)?];
    let digits = before.len() - before.bytes().rev().take_while(u8::is_ascii_digit).count();
    before[digits..].parse::<u32>().ok().map(u64::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cubin(log: &str) -> Cubin {
        Cubin::new(vec![1], "90".parse().expect("an architecture"), log.to_owned())
    }

    #[test]
    fn logs_of_nvrtc_13_are_read() {
        let cubin = cubin(
            "ring.cu(2): warning #177-D: variable \"unused\" was declared but never referenced\n\
             ptxas info    : 0 bytes gmem\n\
             ptxas info    : Compiling entry function 'third' for 'sm_80'\n\
             ptxas info    : Function properties for third\n\
             ptxas         .     40 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n\
             ptxas info    : Used 17 registers, used 0 barriers, 48 bytes cumulative stack size, 360 bytes cmem[0]\n\
             ptxas info    : Compile time = 5.865 ms\n\
             ptxas info    : Function properties for _Z6helperf\n\
             ptxas         .     8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads\n\
             ptxas info    : Compiling entry function 'spill' for 'sm_80'\n\
             ptxas info    : Function properties for spill\n\
             ptxas         .     1128 bytes stack frame, 1372 bytes spill stores, 1360 bytes spill loads\n\
             ptxas info    : Used 64 registers, used 1 barriers, 256 bytes smem, 360 bytes cmem[0]\n",
        );
        let third = Entry { name: "third".into(), registers: 17, stack_bytes: 48, ..Entry::default() };
        let spill = Entry {
            name: "spill".into(),
            registers: 64,
            barriers: 1,
            spill_store_bytes: 1372,
            spill_load_bytes: 1360,
            stack_bytes: 1128,
            shared_bytes: 256,
        };
        assert_eq!(cubin.entries(), [third, spill.clone()]);
        assert_eq!(cubin.entry("spill"), Some(&spill));
        assert_eq!(cubin.entry("_Z6helperf"), None);
        assert_eq!(cubin.spill_bytes(), 1372 + 1360 + 16);
    }

    #[test]
    fn logs_of_nvrtc_12_are_read() {
        let cubin = cubin(
            "ptxas info    : Compiling entry function 'k' for 'sm_90'\n\
             ptxas info    : Function properties for k\n\
             \u{20}   16 bytes stack frame, 8 bytes spill stores, 8 bytes spill loads\n\
             ptxas info    : Used 168 registers, used 1 barriers, 364 bytes cmem[0]\n",
        );
        let entry = cubin.entry("k").expect("it was compiled");
        assert_eq!((entry.registers, entry.stack_bytes, entry.shared_bytes), (168, 16, 0));
        assert_eq!(cubin.spill_bytes(), 16);
    }

    #[test]
    fn odd_logs_are_no_errors() {
        for log in ["", "Used registers", "Used 9 registers", "99999999999999999999 bytes stack frame"] {
            assert_eq!((cubin(log).entries().len(), cubin(log).spill_bytes()), (0, 0), "{log:?}");
        }
    }
}
