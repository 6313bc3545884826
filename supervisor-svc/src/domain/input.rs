//! The rule of what may be handed to an agent as input: a message or items, one of them, neither blank nor empty.

use super::refusal::Refusal;

/// The refusal of input without a word in it.
pub const BLANK: Refusal = Refusal::InvalidInput("Empty message can't be sent to an agent");

/// What a request gave as input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GivenInput<Item> {
    /// The plain form.
    pub message: Option<String>,
    /// The form in pieces.
    pub items: Vec<Item>,
}

/// The input of a request that must have one.
///
/// # Errors
/// [`Refusal::InvalidInput`] with the originals' texts if both or none are given, or what is given is blank.
pub fn required<Item>(given: GivenInput<Item>, text: impl FnOnce(String) -> Item) -> Result<Vec<Item>, Refusal> {
    match given {
        GivenInput {
            message: Some(_),
            items,
        } if !items.is_empty() => Err(Refusal::InvalidInput("Provide either message or items, but not both")),
        GivenInput {
            message: Some(message), ..
        } if message.trim().is_empty() => Err(BLANK),
        GivenInput {
            message: Some(message), ..
        } => Ok(vec![text(message)]),
        GivenInput { message: None, items } if items.is_empty() => {
            Err(Refusal::InvalidInput("Provide one of: message or items"))
        }
        GivenInput { message: None, items } => Ok(items),
    }
}
