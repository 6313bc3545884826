//! The areas of the screen.

use ratatui::layout::Rect;

/// The pane that receives keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Focus {
    #[default]
    List,
    Detail,
}

/// Minimum width of the screen at which the details are next to the list, in columns.
const SIDE_BY_SIDE: u16 = 100;
/// Minimum height of the screen at which the details are below the list, in rows.
const STACKED: u16 = 18;

/// The areas of the screen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Panes {
    pub(super) header: Rect,
    /// `None`: the details have the whole screen.
    pub(super) list: Option<Rect>,
    /// `None`: the list has the whole screen.
    pub(super) detail: Option<Rect>,
    pub(super) footer: Rect,
}

/// Returns the areas of the screen.
pub(super) fn panes((width, height): (u16, u16), focus: Focus) -> Panes {
    let row = |y: u16| Rect::new(0, y, width, u16::from(height > y));
    let body = Rect::new(0, 1, width, height.saturating_sub(2));
    let (list, detail) = if width >= SIDE_BY_SIDE {
        let left = width / 2 + width / 20;
        let right = Rect::new(left + 1, body.y, width - left - 1, body.height);
        (Some(Rect { width: left, ..body }), Some(right))
    } else if body.height >= STACKED {
        let upper = body.height / 2;
        let lower = Rect::new(0, body.y + upper + 1, width, body.height - upper - 1);
        (Some(Rect { height: upper, ..body }), Some(lower))
    } else if focus == Focus::Detail {
        (None, Some(body))
    } else {
        (Some(body), None)
    };
    Panes {
        header: row(0),
        list,
        detail,
        footer: row(height.saturating_sub(1)),
    }
}

impl Panes {
    /// Returns the number of rows of the list, below its heading.
    pub(super) fn list_rows(&self) -> usize {
        self.list.map_or(0, |list| usize::from(list.height.saturating_sub(1)))
    }
}
