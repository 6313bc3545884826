//! The validation of agent input. A request contains either a message or a list of items, which must not be blank or
//! empty.

use crate::rejection::Rejection;

/// The rejection of blank input.
pub const BLANK: Rejection = Rejection::InvalidInput("Empty message can't be sent to an agent");

/// The input fields of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GivenInput<Item> {
    /// The input as plain text.
    pub message: Option<String>,
    /// The input as a list of items.
    pub items: Vec<Item>,
}

/// Returns the input of a request that requires one.
///
/// # Errors
/// [`Rejection::InvalidInput`], with the texts of the original tools, if both or none are set, or if the input is
/// blank.
pub fn required<Item>(given: GivenInput<Item>, text: impl FnOnce(String) -> Item) -> Result<Vec<Item>, Rejection> {
    match given {
        GivenInput {
            message: Some(_),
            items,
        } if !items.is_empty() => Err(Rejection::InvalidInput("Provide either message or items, but not both")),
        GivenInput {
            message: Some(message), ..
        } if message.trim().is_empty() => Err(BLANK),
        GivenInput {
            message: Some(message), ..
        } => Ok(vec![text(message)]),
        GivenInput { message: None, items } if items.is_empty() => {
            Err(Rejection::InvalidInput("Provide one of: message or items"))
        }
        GivenInput { message: None, items } => Ok(items),
    }
}
