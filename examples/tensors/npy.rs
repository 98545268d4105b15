//! `.npy` files, format versions 1 to 3: one array each, its type, order and shape in a header that is
//! a Python dictionary of three entries.
//!
//! Written out here because the crates that read it bring an array library, or a parser generator that
//! needs a C compiler, for a header of one line. Only that line is understood, not Python: the three
//! keys in any order, strings, `True` and `False`, and a tuple of numbers.

use super::{Kind, Tensor};

const MAGIC: &[u8] = b"\x93NUMPY";
/// Longest header that is read. numpy refuses longer ones than 10000 unless told otherwise.
const MAX_HEADER_BYTES: usize = 10_000;

/// Reads the array of a file.
pub(super) fn read(bytes: &[u8]) -> Result<Tensor, String> {
    let rest = bytes.strip_prefix(MAGIC).ok_or("it does not begin as a .npy file")?;
    let (version, rest) = rest.split_at_checked(2).ok_or(CUT)?;
    let (length_bytes, rest) = match version[0] {
        1 => rest.split_at_checked(2).ok_or(CUT)?,
        2 | 3 => rest.split_at_checked(4).ok_or(CUT)?,
        other => return Err(format!("version {other} of the .npy format is not known; 1 to 3 are")),
    };
    let length = length_bytes.iter().rev().fold(0, |length, byte| length << 8 | usize::from(*byte));
    if length > MAX_HEADER_BYTES {
        return Err(format!("its header claims {length} bytes; at most {MAX_HEADER_BYTES} are read"));
    }
    let (header, data) = rest.split_at_checked(length).ok_or(CUT)?;
    let header = std::str::from_utf8(header).map_err(|_| "its header is no text")?;
    let Header { kind, column_major, shape } = Parser { rest: header }.header()?;
    let tensor = Tensor::from_bytes("array".to_owned(), kind, shape, data)?;
    Ok(Tensor { column_major, ..tensor })
}

const CUT: &str = "it is cut short";

/// The bytes of a file with one array.
///
/// Errors: types that numpy does not have.
pub(super) fn write(tensor: &Tensor) -> Result<Vec<u8>, String> {
    let kind = tensor.values.kind();
    let descr = kind.descr().ok_or_else(|| format!(".npy has no type for {kind}; write a .safetensors"))?;
    let order = if tensor.column_major { "True" } else { "False" };
    let mut shape: String = tensor.shape.iter().map(|size| format!("{size}, ")).collect();
    if tensor.shape.len() > 1 {
        shape.truncate(shape.len() - 2);
    } else {
        shape = shape.trim_end().to_owned();
    }
    let mut header = format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': ({shape}), }}");
    // Spaces and a line's end, so that the data begins at a multiple of 64.
    let before = MAGIC.len() + 4;
    let padded = (before + header.len() + 1).next_multiple_of(64) - before;
    header.extend(std::iter::repeat_n(' ', padded - 1 - header.len()));
    header.push('\n');
    let length = u16::try_from(header.len()).map_err(|_| "its shape is too long for a .npy file")?;
    let mut file = MAGIC.to_vec();
    file.extend([1, 0]);
    file.extend(length.to_le_bytes());
    file.extend(header.as_bytes());
    file.extend(tensor.values.bytes());
    Ok(file)
}

struct Header {
    kind: Kind,
    column_major: bool,
    shape: Vec<usize>,
}

struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn header(mut self) -> Result<Header, String> {
        let (mut kind, mut column_major, mut shape) = (None, None, None);
        self.expect("{")?;
        while !self.accept("}") {
            let key = self.string()?;
            self.expect(":")?;
            let fresh = match key {
                "descr" => kind.replace(Kind::from_descr(self.string()?)?).is_none(),
                "fortran_order" => column_major.replace(self.truth()?).is_none(),
                "shape" => shape.replace(self.tuple()?).is_none(),
                other => return Err(format!("its header has the unknown key {other:?}")),
            };
            if !fresh {
                return Err(format!("its header has {key:?} twice"));
            }
            if !self.accept(",") {
                self.expect("}")?;
                break;
            }
        }
        if !self.rest.trim().is_empty() {
            return Err("something follows the dictionary in its header".to_owned());
        }
        let missing = |key: &str| format!("its header lacks {key:?}");
        Ok(Header {
            kind: kind.ok_or_else(|| missing("descr"))?,
            column_major: column_major.ok_or_else(|| missing("fortran_order"))?,
            shape: shape.ok_or_else(|| missing("shape"))?,
        })
    }

    fn accept(&mut self, sign: &str) -> bool {
        match self.rest.trim_start().strip_prefix(sign) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, sign: &str) -> Result<(), String> {
        if self.accept(sign) { Ok(()) } else { Err(self.surprise(sign)) }
    }

    fn surprise(&self, wanted: &str) -> String {
        let found: String = self.rest.trim_start().chars().take(12).collect();
        format!("its header has {found:?} where {wanted:?} should be")
    }

    fn string(&mut self) -> Result<&'a str, String> {
        let text = self.rest.trim_start();
        let quote = text.chars().next().filter(|sign| matches!(sign, '\'' | '"'));
        let quote = quote.ok_or_else(|| self.surprise("'"))?;
        let (string, rest) = text[1..].split_once(quote).ok_or("a string in its header has no end")?;
        self.rest = rest;
        Ok(string)
    }

    fn truth(&mut self) -> Result<bool, String> {
        if self.accept("True") {
            return Ok(true);
        }
        self.expect("False").map(|()| false)
    }

    fn tuple(&mut self) -> Result<Vec<usize>, String> {
        let mut sizes = Vec::new();
        self.expect("(")?;
        while !self.accept(")") {
            let text = self.rest.trim_start();
            let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let size = text[..digits].parse().map_err(|_| self.surprise("a size"))?;
            self.rest = &text[digits..];
            sizes.push(size);
            if !self.accept(",") {
                self.expect(")")?;
                break;
            }
        }
        Ok(sizes)
    }
}
