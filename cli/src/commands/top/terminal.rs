//! The terminal: entering and leaving its screen, and drawing the differences between two frames.

use std::io::{self, BufWriter, Stdout, Write};

use crossterm::{
    cursor, event, execute, queue,
    terminal::{self, BeginSynchronizedUpdate, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen},
};
use ratatui::{
    backend::{Backend as _, CrosstermBackend},
    buffer::Buffer,
    layout::{Position, Rect},
};

use crate::error::Result;

/// The title of the terminal after the screen was left.
const NO_TITLE: &str = "";

/// The screen of the terminal. Dropping this value restores the terminal.
pub(super) struct Screen {
    backend: CrosstermBackend<BufWriter<Stdout>>,
    shown: Buffer,
    cursor: Option<Position>,
    title: String,
    has_mouse: bool,
    is_entered: bool,
}

impl Screen {
    /// Takes over the terminal.
    pub(super) fn enter(has_mouse: bool) -> Result<Self> {
        let mut screen = Self {
            backend: CrosstermBackend::new(BufWriter::new(io::stdout())),
            shown: Buffer::empty(Rect::ZERO),
            cursor: None,
            title: String::new(),
            has_mouse,
            is_entered: false,
        };
        screen.resume()?;
        Ok(screen)
    }

    /// Takes over the terminal again after [`Self::leave`].
    pub(super) fn resume(&mut self) -> Result<()> {
        terminal::enable_raw_mode()?;
        self.is_entered = true;
        execute!(
            self.backend,
            EnterAlternateScreen,
            cursor::Hide,
            event::EnableBracketedPaste
        )?;
        if self.has_mouse {
            execute!(self.backend, event::EnableMouseCapture)?;
        }
        self.redraw();
        Ok(())
    }

    /// Lets the program read single keys while the screen is left, until [`Self::resume`] or [`Self::leave`].
    pub(super) fn read_keys(&mut self) -> Result<()> {
        self.is_entered = true;
        Ok(terminal::enable_raw_mode()?)
    }

    /// Restores the terminal.
    pub(super) fn leave(&mut self) {
        if std::mem::take(&mut self.is_entered) {
            self.title.clear();
            restore(&mut self.backend);
        }
    }

    /// Returns the size of the terminal in columns and rows.
    pub(super) fn size(&self) -> Result<(u16, u16)> {
        Ok(terminal::size()?)
    }

    /// Forgets the content of the terminal, so that the next frame is drawn completely.
    pub(super) fn redraw(&mut self) {
        self.shown = Buffer::empty(Rect::ZERO);
    }

    /// Draws a frame. Writes its differences from the last frame as one update. Writes nothing if the frames are equal.
    pub(super) fn draw(&mut self, frame: Buffer, cursor: Option<Position>, title: &str) -> Result<()> {
        let is_resized = self.shown.area != frame.area;
        if is_resized {
            self.shown = Buffer::empty(frame.area);
        }
        let changes = self.shown.diff(&frame);
        if changes.is_empty() && !is_resized && cursor == self.cursor && title == self.title {
            return Ok(());
        }
        queue!(self.backend, BeginSynchronizedUpdate)?;
        if is_resized {
            queue!(self.backend, terminal::Clear(terminal::ClearType::All))?;
        }
        self.backend.draw(changes.into_iter())?;
        match cursor {
            Some(position) => queue!(self.backend, cursor::MoveTo(position.x, position.y), cursor::Show)?,
            None => queue!(self.backend, cursor::Hide)?,
        }
        if title != self.title {
            queue!(self.backend, terminal::SetTitle(title))?;
            title.clone_into(&mut self.title);
        }
        queue!(self.backend, EndSynchronizedUpdate)?;
        io::Write::flush(&mut self.backend)?;
        self.shown = frame;
        self.cursor = cursor;
        Ok(())
    }

    /// Writes control sequences that change no cell.
    pub(super) fn write(&mut self, sequence: &str) -> Result<()> {
        self.backend.write_all(sequence.as_bytes())?;
        Ok(io::Write::flush(&mut self.backend)?)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Restores the terminal. Errors are ignored, because there is no other output on which to report them.
fn restore(out: &mut impl Write) {
    let _ = execute!(
        out,
        EndSynchronizedUpdate,
        event::DisableMouseCapture,
        event::DisableBracketedPaste,
        terminal::SetTitle(NO_TITLE),
        LeaveAlternateScreen,
        cursor::Show
    );
    let _ = terminal::disable_raw_mode();
}

/// Installs a panic hook that restores the terminal before the message is printed.
pub(super) fn restore_at_panic() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        restore(&mut io::stdout());
        print(panic);
    }));
}
