//! Whether memory that a program passes is there: what `NCCL_CHECK_POINTERS` asks for on host memory.
//!
//! The system's own list of this process's memory is read at every call, which is slow, so nobody pays for it
//! who has not asked. What another thread frees during the call is not seen.

use crate::arguments::Side;
use std::fs;

/// A range of this process's memory and what may be done with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    start: u64,
    end: u64,
    is_readable: bool,
    is_writable: bool,
}

/// Looks whether a range may be read or written. Where the system has no list, it may.
///
/// Errors: what is wrong with it, for a sentence about the buffer.
pub(crate) fn check(side: Side, address: usize, bytes: u64) -> Result<(), String> {
    match fs::read_to_string("/proc/self/maps") {
        Ok(maps) => covered(maps.lines().filter_map(range), side, address as u64, bytes),
        Err(error) => {
            tracing::warn!(target: "ringsmith::call", "pointers cannot be checked: /proc/self/maps: {error}");
            Ok(())
        }
    }
}

/// A line of the list: `start-end rwxp …`, in hexadecimal digits.
fn range(line: &str) -> Option<Range> {
    let (bounds, rest) = line.split_once(' ')?;
    let (start, end) = bounds.split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    let may = |at: usize, right: u8| rest.as_bytes().get(at) == Some(&right);
    Some(Range {
        start: number(start)?,
        end: number(end)?,
        is_readable: may(0, b'r'),
        is_writable: may(1, b'w'),
    })
}

/// Whether ranges, which come in ascending order, let all of a buffer be used.
fn covered(ranges: impl Iterator<Item = Range>, side: Side, address: u64, bytes: u64) -> Result<(), String> {
    let verb = match side {
        Side::Input => "read",
        Side::Output => "written",
    };
    let Some(end) = address.checked_add(bytes) else {
        return Err(format!("cannot be {verb}: it ends beyond the last address"));
    };
    let mut next = address;
    for range in ranges.skip_while(|range| range.end <= address) {
        let may = match side {
            Side::Input => range.is_readable,
            Side::Output => range.is_writable,
        };
        if range.start > next || !may {
            break;
        }
        next = range.end;
        if next >= end {
            return Ok(());
        }
    }
    Err(format!("cannot be {verb} from {next:#x} on"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str =
        "1000-3000 rw-p 00000000 00:00 0\n3000-4000 r--p 00000000 00:00 0 [heap]\n6000-7000 ---p 0 0 0\n";

    fn checked(side: Side, address: u64, bytes: u64) -> Result<(), String> {
        covered(MAPS.lines().filter_map(range), side, address, bytes)
    }

    #[test]
    fn every_byte_must_be_there_and_usable() {
        assert_eq!(checked(Side::Input, 0x1000, 0x3000), Ok(()));
        assert_eq!(checked(Side::Output, 0x1000, 0x2000), Ok(()));
        let wrong = |side, address, bytes| checked(side, address, bytes).unwrap_err();
        assert_eq!(wrong(Side::Output, 0x2000, 0x1001), "cannot be written from 0x3000 on");
        assert_eq!(wrong(Side::Input, 0x3000, 0x1001), "cannot be read from 0x4000 on");
        assert_eq!(wrong(Side::Input, 0xfff, 2), "cannot be read from 0xfff on");
        assert_eq!(wrong(Side::Input, 0x6000, 1), "cannot be read from 0x6000 on");
        assert_eq!(wrong(Side::Input, 0x9000, 1), "cannot be read from 0x9000 on");
        assert_eq!(wrong(Side::Input, u64::MAX, 1), "cannot be read: it ends beyond the last address");
    }

    #[test]
    fn this_process_is_found_in_its_own_list() {
        let mut here = [0u8; 64];
        assert_eq!(check(Side::Input, here.as_ptr() as usize, 64), Ok(()));
        assert_eq!(check(Side::Output, here.as_mut_ptr() as usize, 64), Ok(()));
        let text = MAPS.as_ptr() as usize;
        assert_eq!(check(Side::Input, text, 1), Ok(()));
        assert!(check(Side::Output, text, 1).is_err());
        assert!(check(Side::Input, 64, 1).is_err());
    }
}
