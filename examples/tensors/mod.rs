//! Tensors in files: `.safetensors` with any number of them, `.npy` with one.
//!
//! Everything about a file is checked before it is believed: a length that its header claims is
//! compared with the bytes that are there before anything of that size is made. Both formats are little
//! endian, as are the machines that this is for.

mod npy;

use ringsmith::{F8E4M3, F8E5M2, Group, Op, bf16, f16};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A tensor of a file.
pub(crate) struct Tensor {
    pub(crate) name: String,
    pub(crate) shape: Vec<usize>,
    /// Whether the first index varies fastest in memory (Fortran's order), not the last.
    pub(crate) column_major: bool,
    pub(crate) values: Values,
}

/// From here on one table says everything about a type: its name, its Rust type, safetensors' name, and
/// numpy's, if numpy has it.
macro_rules! kinds {
    ($($kind:ident $rust:ty, $name:literal, $safetensors:ident, $descr:expr;)*) => {
        /// An element type.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Kind { $($kind,)* }

        /// The elements of a tensor.
        pub(crate) enum Values { $($kind(Vec<$rust>),)* }

        impl Kind {
            const ALL: &[Self] = &[$(Self::$kind,)*];

            fn name(self) -> &'static str {
                match self { $(Self::$kind => $name,)* }
            }

            fn size_bytes(self) -> usize {
                match self { $(Self::$kind => size_of::<$rust>(),)* }
            }

            /// numpy's name, without the sign of the byte order.
            fn numpy(self) -> Option<&'static str> {
                match self { $(Self::$kind => $descr,)* }
            }

            fn safetensors(self) -> Dtype {
                match self { $(Self::$kind => Dtype::$safetensors,)* }
            }

            /// Elements of this type from bytes, a whole number of them.
            fn values(self, bytes: &[u8]) -> Values {
                let elements = bytes.chunks_exact(self.size_bytes());
                match self {
                    $(Self::$kind => Values::$kind(elements.map(bytemuck::pod_read_unaligned).collect()),)*
                }
            }
        }

        impl Values {
            pub(crate) fn kind(&self) -> Kind {
                match self { $(Self::$kind(_) => Kind::$kind,)* }
            }

            /// The elements as bytes.
            pub(crate) fn bytes(&self) -> &[u8] {
                match self { $(Self::$kind(values) => bytemuck::cast_slice(values),)* }
            }

            /// Adds an all_reduce of the elements to a group.
            pub(crate) fn all_reduce<'a>(&'a mut self, group: &mut Group<'a>, op: Op) {
                match self { $(Self::$kind(values) => group.all_reduce_in_place(values, op),)* }
            }
        }

        impl fmt::Display for Values {
            /// The first few.
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self { $(Self::$kind(values) => write_some(f, values),)* }
            }
        }
    };
}

kinds! {
    Int8 i8, "int8", I8, Some("i1");
    Uint8 u8, "uint8", U8, Some("u1");
    Int32 i32, "int32", I32, Some("i4");
    Uint32 u32, "uint32", U32, Some("u4");
    Int64 i64, "int64", I64, Some("i8");
    Uint64 u64, "uint64", U64, Some("u8");
    Float16 f16, "float16", F16, Some("f2");
    Float32 f32, "float32", F32, Some("f4");
    Float64 f64, "float64", F64, Some("f8");
    Bfloat16 bf16, "bfloat16", BF16, None;
    Float8E4M3 F8E4M3, "float8e4m3", F8_E4M3, None;
    Float8E5M2 F8E5M2, "float8e5m2", F8_E5M2, None;
}

fn write_some(f: &mut fmt::Formatter<'_>, values: &[impl fmt::Display]) -> fmt::Result {
    const SHOWN: usize = 4;
    for (index, value) in values.iter().take(SHOWN).enumerate() {
        write!(f, "{}{value}", if index == 0 { "" } else { " " })?;
    }
    f.write_str(if values.len() > SHOWN { " ..." } else { "" })
}

impl Kind {
    fn from_safetensors(dtype: Dtype) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|kind| kind.safetensors() == dtype);
        found.copied().ok_or_else(|| format!("the type {dtype:?} cannot be averaged; {}", known()))
    }

    fn from_descr(descr: &str) -> Result<Self, String> {
        let refuse = || format!("the type {descr:?} cannot be averaged; {}", known());
        let name = descr.get(1..).ok_or_else(refuse)?;
        let kind = Self::ALL.iter().find(|kind| kind.numpy() == Some(name)).ok_or_else(refuse)?;
        match descr.as_bytes()[0] {
            b'<' => Ok(*kind),
            b'|' | b'>' | b'=' if kind.size_bytes() == 1 => Ok(*kind),
            b'>' => Err(format!("the type {descr:?} is big endian; convert it with .astype('<{name}')")),
            _ => Err(refuse()),
        }
    }

    /// numpy's full name.
    fn descr(self) -> Option<String> {
        let order = if self.size_bytes() == 1 { '|' } else { '<' };
        self.numpy().map(|name| format!("{order}{name}"))
    }
}

fn known() -> String {
    let names: Vec<&str> = Kind::ALL.iter().map(|kind| kind.name()).collect();
    format!("those that can: {}", names.join(", "))
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Tensor {
    /// Copies the elements out of a file, once their bytes are as many as the shape says.
    fn from_bytes(name: String, kind: Kind, shape: Vec<usize>, bytes: &[u8]) -> Result<Self, String> {
        let claimed = shape
            .iter()
            .try_fold(kind.size_bytes(), |bytes, size| bytes.checked_mul(*size))
            .ok_or_else(|| format!("tensor {name:?}: {kind} {shape:?} is more than memory can hold"))?;
        if claimed != bytes.len() {
            let there = bytes.len();
            return Err(format!(
                "tensor {name:?}: {kind} {shape:?} needs {claimed} bytes, the file has {there}"
            ));
        }
        Ok(Self { name, shape, column_major: false, values: kind.values(bytes) })
    }

    /// What ranks must agree on.
    pub(crate) fn describe(&self) -> String {
        let order = if self.column_major { ", column-major" } else { "" };
        format!("{} {:?}{order}", self.values.kind(), self.shape)
    }
}

/// The shards of a folder, in the order of their names.
///
/// Errors: a folder that cannot be read.
pub(crate) fn shards(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let failed = |error: io::Error| format!("{}: {error}", folder.display());
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if matches!(ending(&path), "npy" | "safetensors") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// The ending of a file's name; empty if it has none.
pub(crate) fn ending(path: &Path) -> &str {
    path.extension().and_then(|ending| ending.to_str()).unwrap_or_default()
}

/// Reads the tensors of a file, ordered by name.
///
/// Errors: a file that is damaged, or holds what cannot be averaged; every one names the file.
pub(crate) fn read(path: &Path) -> Result<Vec<Tensor>, String> {
    let failed = |what: &dyn fmt::Display| format!("{}: {what}", path.display());
    // Opening a pipe would wait for ever, and a device may have no end.
    if !fs::metadata(path).map_err(|e| failed(&e))?.is_file() {
        return Err(failed(&"not a file"));
    }
    let bytes = fs::read(path).map_err(|e| failed(&e))?;
    let tensors = match ending(path) {
        "npy" => npy::read(&bytes).map(|tensor| vec![tensor]),
        _ => read_safetensors(&bytes),
    };
    tensors.map_err(|what| failed(&what))
}

fn read_safetensors(bytes: &[u8]) -> Result<Vec<Tensor>, String> {
    let file = SafeTensors::deserialize(bytes).map_err(|e| format!("no valid .safetensors file: {e}"))?;
    let mut views = file.tensors();
    views.sort_by(|(a, _), (b, _)| a.cmp(b));
    views
        .into_iter()
        .map(|(name, view)| {
            let kind =
                Kind::from_safetensors(view.dtype()).map_err(|what| format!("tensor {name:?}: {what}"))?;
            Tensor::from_bytes(name, kind, view.shape().to_vec(), view.data())
        })
        .collect()
}

/// The bytes of a file with these tensors, in the format that the ending of its name says.
///
/// Errors: what the format cannot hold; every one names the file.
pub(crate) fn encode(path: &Path, tensors: &[Tensor]) -> Result<Vec<u8>, String> {
    let bytes = match (ending(path), tensors) {
        ("npy", [tensor]) => npy::write(tensor),
        ("npy", _) => Err(format!("a .npy file holds one tensor, not {}", tensors.len())),
        _ => write_safetensors(tensors),
    };
    bytes.map_err(|what| format!("{}: {what}", path.display()))
}

/// Writes a file. Readers see all of it or nothing.
///
/// Errors: every one names the file.
pub(crate) fn store(path: &Path, bytes: &[u8]) -> Result<(), String> {
    let temporary = path.with_extension(format!("{}.part", std::process::id()));
    fs::write(&temporary, bytes).and_then(|()| fs::rename(&temporary, path)).map_err(|error| {
        // The first error is the one to report.
        let _ = fs::remove_file(&temporary);
        format!("{}: {error}", path.display())
    })
}

fn write_safetensors(tensors: &[Tensor]) -> Result<Vec<u8>, String> {
    let views = tensors.iter().map(named_view).collect::<Result<Vec<_>, _>>()?;
    safetensors::serialize(views, None).map_err(|e| e.to_string())
}

fn named_view(tensor: &Tensor) -> Result<(String, TensorView<'_>), String> {
    if tensor.column_major {
        return Err(format!("tensor {:?} is column-major, which only .npy can say", tensor.name));
    }
    let dtype = tensor.values.kind().safetensors();
    let view = TensorView::new(dtype, tensor.shape.clone(), tensor.values.bytes());
    view.map(|view| (tensor.name.clone(), view)).map_err(|e| format!("tensor {:?}: {e}", tensor.name))
}
