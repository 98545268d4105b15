//! Opening what a user has named, without waiting for ever: a named pipe that nobody holds the other end of
//! blocks whoever opens it as an ordinary file.
//!
//! Opens only: what a file must hold, and how long it may be, is decided by whoever reads it.

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Error, ErrorKind};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// Waits for nobody, and takes no terminal over.
const FLAGS: i32 = OFlags::NONBLOCK.union(OFlags::NOCTTY).bits() as i32;

/// What something that is no ordinary file is, in a word.
pub fn what(metadata: &Metadata) -> &'static str {
    let kind = metadata.file_type();
    match () {
        () if kind.is_dir() => "a folder",
        () if kind.is_fifo() => "a pipe",
        () if kind.is_socket() => "a socket",
        () if kind.is_char_device() || kind.is_block_device() => "a device",
        () => "a file",
    }
}

/// Opens a file that is read again and again, by several processes: a pipe would give its text to one of them.
///
/// Errors: what is a folder, a pipe or a socket.
pub fn to_read_again(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(FLAGS).open(path)?;
    let metadata = file.metadata()?;
    match what(&metadata) {
        what @ ("a folder" | "a pipe" | "a socket") => {
            Err(Error::new(ErrorKind::InvalidInput, format!("it is {what}, and an ordinary file is needed")))
        }
        _ => Ok(file),
    }
}

/// Opens for writing, as `options` say.
///
/// Errors: a pipe that nobody reads.
pub fn to_write(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let file = options.write(true).custom_flags(FLAGS).open(path).map_err(|error| {
        // What the system says of a pipe without a reader is that there is no such device.
        let is_pipe = || std::fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo());
        match error.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
            Some(rustix::io::Errno::NXIO) if is_pipe() => {
                Error::new(ErrorKind::NotConnected, "it is a pipe that nobody reads")
            }
            _ => error,
        }
    })?;
    fcntl_setfl(&file, fcntl_getfl(&file)?.difference(OFlags::NONBLOCK))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn pipes_without_another_end_are_no_files() {
        let folder = std::env::temp_dir().join(format!("ringsmith-files-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let pipe = folder.join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let read = to_read_again(&pipe).unwrap_err().to_string();
        assert_eq!(read, "it is a pipe, and an ordinary file is needed");
        assert!(to_read_again(&folder).unwrap_err().to_string().contains("it is a folder"));
        let written = to_write(&mut OpenOptions::new(), &pipe).unwrap_err().to_string();
        assert_eq!(written, "it is a pipe that nobody reads");
        // With a reader, what does not fit waits for it.
        let mut reader = OpenOptions::new().read(true).custom_flags(FLAGS).open(&pipe).unwrap();
        let mut writer = to_write(&mut OpenOptions::new(), &pipe).unwrap();
        assert!(!fcntl_getfl(&writer).unwrap().contains(OFlags::NONBLOCK));
        writer.write_all(b"text").unwrap();
        drop(writer);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "text");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
