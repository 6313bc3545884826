//! Inputs of several messages, each after its length as a varint.

/// The messages of an input. The last one ends where the input does, so that no change of a length makes all of it void.
pub fn frames(mut input: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let length = prost::decode_length_delimiter(&mut input).ok()?;
        let (frame, rest) = input.split_at(length.min(input.len()));
        input = rest;
        Some(frame)
    })
}
