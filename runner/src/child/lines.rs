//! Reads lines from an untrusted writer. Lines have a maximum length. Longer lines are counted and not stored.

use std::io;

use tokio::io::{AsyncBufRead, AsyncBufReadExt as _};

/// Maximum length of the stored beginning of an overlong line, in bytes.
const BEGINNING: usize = 1_024;

/// A line without its line end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// The text of the line. Bytes that are not UTF-8 are replaced.
    Text(String),
    /// The line was longer than the limit and was dropped.
    TooLong {
        /// The length of the line.
        bytes: u64,
        /// The beginning of the line, as far as it is text.
        beginning: String,
    },
}

/// Reads lines of at most `max` bytes.
pub(crate) struct BoundedLines<R> {
    reader: R,
    max: usize,
}

impl<R: AsyncBufRead + Unpin> BoundedLines<R> {
    pub(crate) const fn new(reader: R, max: usize) -> Self {
        Self { reader, max }
    }

    /// Returns the next line, or `None` at the end. The last line may lack a line end. Not cancel safe: bytes read so
    /// far are lost when the future is dropped.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Line>> {
        let (mut kept, mut beginning) = (Vec::new(), Vec::new());
        let mut length = 0_u64;
        loop {
            let available = self.reader.fill_buf().await?;
            if available.is_empty() {
                return Ok((length > 0).then(|| self.finish(kept, &beginning, length)));
            }
            let end = available.iter().position(|&byte| byte == b'\n');
            let piece = &available[..end.unwrap_or(available.len())];
            let missing = BEGINNING.saturating_sub(beginning.len()).min(piece.len());
            beginning.extend_from_slice(&piece[..missing]);
            length += piece.len() as u64;
            if length <= self.max as u64 {
                kept.extend_from_slice(piece);
            } else {
                kept = Vec::new();
            }
            let used = piece.len() + usize::from(end.is_some());
            self.reader.consume(used);
            if end.is_some() {
                return Ok(Some(self.finish(kept, &beginning, length)));
            }
        }
    }

    fn finish(&self, mut kept: Vec<u8>, beginning: &[u8], length: u64) -> Line {
        if length > self.max as u64 {
            return Line::TooLong {
                bytes: length,
                beginning: String::from_utf8_lossy(beginning).into_owned(),
            };
        }
        if kept.last() == Some(&b'\r') {
            kept.pop();
        }
        Line::Text(
            String::from_utf8(kept).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()),
        )
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tokio::io::BufReader;

    use super::*;

    async fn lines(input: &[u8], buffer: usize, max: usize) -> Vec<Line> {
        let mut lines = BoundedLines::new(BufReader::with_capacity(buffer, input), max);
        let mut found = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            found.push(line);
        }
        found
    }

    fn text(text: &str) -> Line {
        Line::Text(text.to_owned())
    }

    #[tokio::test]
    async fn lines_are_split_for_any_buffer_size() {
        for buffer in 1..8 {
            let found = lines(b"one\r\n\ntwo\nlast", buffer, 100).await;
            assert_eq!(found, [text("one"), text(""), text("two"), text("last")]);
        }
    }

    #[tokio::test]
    async fn overlong_line_is_counted_and_next_line_is_read() {
        for buffer in 1..8 {
            let found = lines(b"12345\n123456\n1\n", buffer, 5).await;
            let too_long = Line::TooLong {
                bytes: 6,
                beginning: String::from("123456"),
            };
            assert_eq!(found, [text("12345"), too_long, text("1")]);
        }
    }

    #[tokio::test]
    async fn invalid_utf8_is_replaced() {
        assert_eq!(lines(b"a\xffb\n", 8, 100).await, [text("a\u{fffd}b")]);
    }
}
