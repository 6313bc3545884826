//! Inputs of several messages, each prefixed with its length as a varint.

/// Returns the messages of an input. A message that is longer than the rest of the input is truncated, so that a
/// changed length does not invalidate the whole input.
pub fn frames(mut input: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let length = prost::decode_length_delimiter(&mut input).ok()?;
        let (frame, rest) = input.split_at(length.min(input.len()));
        input = rest;
        Some(frame)
    })
}
