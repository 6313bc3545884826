//! A frame that is drawn again in place, for a terminal.

use std::io::Write as _;

use super::width;
use crate::error::Result;

/// Moves the cursor up that many lines and to the first column, then erases from there to the end of the screen.
fn erase(lines: usize) -> String {
    match lines {
        0 => String::new(),
        _ => format!("\u{1b}[{lines}F\u{1b}[0J"),
    }
}

/// The frame at the end of the output. Only for terminals: see [`super::is_interactive`].
#[derive(Debug, Default)]
pub(crate) struct Live {
    drawn: usize,
}

impl Live {
    /// Puts a frame in the place of the one before. Its lines must not be wider than the terminal.
    pub(crate) fn draw(&mut self, frame: &str) -> Result<()> {
        // A frame taller than the terminal would leave its head behind at every turn.
        let lines: Vec<&str> = frame.lines().collect();
        let most = width::rows().saturating_sub(1);
        let shown = lines.get(..most.min(lines.len())).unwrap_or_default();
        self.replace(shown)
    }

    /// Writes a line above the frame; the frame is drawn again by the next [`Self::draw`].
    pub(crate) fn above(&mut self, text: &str) -> Result<()> {
        self.replace(&[text])?;
        self.drawn = 0;
        Ok(())
    }

    /// Leaves the frame as it is: what is written next comes below it.
    pub(crate) fn finish(&mut self) {
        self.drawn = 0;
    }

    fn replace(&mut self, lines: &[&str]) -> Result<()> {
        // One write, so that the terminal never shows half a frame.
        let mut bytes = erase(self.drawn);
        for line in lines {
            bytes.push_str(line);
            bytes.push('\n');
        }
        let mut out = anstream::stdout().lock();
        out.write_all(bytes.as_bytes())?;
        out.flush()?;
        self.drawn = lines.len();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_drawn_is_nothing_erased() {
        assert_eq!(erase(0), "");
        assert_eq!(erase(3), "\u{1b}[3F\u{1b}[0J");
    }
}
