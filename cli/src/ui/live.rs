//! A terminal frame that is redrawn in place.

use std::io::Write as _;

use super::width;
use crate::error::Result;

/// Returns the control sequence that moves the cursor up by `lines` lines to the first column and erases the rest of
/// the screen.
fn erase(lines: usize) -> String {
    match lines {
        0 => String::new(),
        _ => format!("\u{1b}[{lines}F\u{1b}[0J"),
    }
}

/// The frame at the end of the output. Only for terminals: see [`super::Ui::live`].
#[derive(Debug, Default)]
pub(crate) struct Live {
    drawn: usize,
}

impl Live {
    /// Replaces the previous frame. The lines of `frame` must not be wider than the terminal.
    pub(crate) fn draw(&mut self, frame: &str) -> Result<()> {
        // Redrawing a frame taller than the terminal would leave its first lines in the scrollback.
        let lines: Vec<&str> = frame.lines().collect();
        let most = width::rows().saturating_sub(1);
        let shown = lines.get(..most.min(lines.len())).unwrap_or_default();
        self.replace(shown)
    }

    /// Writes a line above the frame. The next [`Self::draw`] restores the frame.
    pub(crate) fn above(&mut self, text: &str) -> Result<()> {
        self.replace(&[text])?;
        self.drawn = 0;
        Ok(())
    }

    /// Keeps the frame. Later output appears below it.
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
    fn empty_frame_erases_nothing() {
        assert_eq!(erase(0), "");
        assert_eq!(erase(3), "\u{1b}[3F\u{1b}[0J");
    }
}
