//! Files of tensors, written byte by byte so that they share no code with the example.

use ringsmith::DataType;
use std::fmt::Write;

/// A tensor of a shard.
pub(crate) struct Tensor {
    pub(crate) name: &'static str,
    pub(crate) dtype: DataType,
    pub(crate) shape: Vec<usize>,
    pub(crate) bytes: Vec<u8>,
}

impl Tensor {
    /// Elements of a shape.
    pub(crate) fn elements(shape: &[usize]) -> usize {
        shape.iter().product()
    }
}

/// safetensors' name of a type.
pub(crate) fn safetensors_name(dtype: DataType) -> &'static str {
    match dtype {
        DataType::Int8 => "I8",
        DataType::Uint8 => "U8",
        DataType::Int32 => "I32",
        DataType::Uint32 => "U32",
        DataType::Int64 => "I64",
        DataType::Uint64 => "U64",
        DataType::Float16 => "F16",
        DataType::Float32 => "F32",
        DataType::Float64 => "F64",
        DataType::Bfloat16 => "BF16",
        DataType::Float8E4M3 => "F8_E4M3",
        DataType::Float8E5M2 => "F8_E5M2",
    }
}

/// numpy's name of a type, where it has one.
pub(crate) fn numpy_name(dtype: DataType) -> Option<&'static str> {
    Some(match dtype {
        DataType::Int8 => "|i1",
        DataType::Uint8 => "|u1",
        DataType::Int32 => "<i4",
        DataType::Uint32 => "<u4",
        DataType::Int64 => "<i8",
        DataType::Uint64 => "<u8",
        DataType::Float16 => "<f2",
        DataType::Float32 => "<f4",
        DataType::Float64 => "<f8",
        DataType::Bfloat16 | DataType::Float8E4M3 | DataType::Float8E5M2 => return None,
    })
}

/// A `.safetensors` file with a header as given.
pub(crate) fn safetensors_with(header: &str, data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), data].concat()
}

/// A `.safetensors` file.
pub(crate) fn safetensors(tensors: &[Tensor]) -> Vec<u8> {
    let (mut rows, mut data) = (String::new(), Vec::new());
    for tensor in tensors {
        let start = data.len();
        data.extend(&tensor.bytes);
        let separator = if rows.is_empty() { "" } else { "," };
        write!(
            rows,
            r#"{separator}"{}":{{"dtype":"{}","shape":{:?},"data_offsets":[{start},{}]}}"#,
            tensor.name,
            safetensors_name(tensor.dtype),
            tensor.shape,
            data.len()
        )
        .expect("a string takes everything");
    }
    safetensors_with(&format!("{{{rows}}}"), &data)
}

/// A `.npy` file with a header as given, in version `version` of the format.
pub(crate) fn npy_with(version: u8, header: &str, data: &[u8]) -> Vec<u8> {
    let mut length = (header.len() as u32).to_le_bytes().to_vec();
    if version == 1 {
        length.truncate(2);
    }
    [b"\x93NUMPY", &[version, 0][..], &length, header.as_bytes(), data].concat()
}

/// A tuple as Python writes it.
pub(crate) fn tuple(shape: &[usize]) -> String {
    match shape {
        [one] => format!("({one},)"),
        _ => format!("({})", shape.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")),
    }
}

/// A header as numpy writes it, but for the spaces at its end.
pub(crate) fn npy_header(descr: &str, column_major: bool, shape: &[usize]) -> String {
    let order = if column_major { "True" } else { "False" };
    format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {}, }}", tuple(shape))
}

/// A `.npy` file as numpy writes it.
pub(crate) fn npy(tensor: &Tensor, column_major: bool) -> Vec<u8> {
    let descr = numpy_name(tensor.dtype).expect("a type that numpy has");
    let mut header = npy_header(descr, column_major, &tensor.shape);
    while !(10 + header.len() + 1).is_multiple_of(64) {
        header.push(' ');
    }
    header.push('\n');
    npy_with(1, &header, &tensor.bytes)
}
