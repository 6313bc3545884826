//! The messages and enums of a proto file, including nested ones.

use prost_types::{DescriptorProto, EnumDescriptorProto, FileDescriptorProto};

use super::comments::{inside, step};

/// A message or an enum.
pub struct Declared<'a, D> {
    /// Its name without the package: `PlanStep.State`.
    pub name: String,
    /// The path of its comment.
    pub path: Vec<i32>,
    /// The descriptor of the declaration.
    pub descriptor: &'a D,
}

/// All declarations of a file except services. Nested declarations follow their parent.
#[derive(Default)]
pub struct Declarations<'a> {
    /// The messages, without messages that only represent map entries.
    pub messages: Vec<Declared<'a, DescriptorProto>>,
    /// The enums.
    pub enums: Vec<Declared<'a, EnumDescriptorProto>>,
}

impl<'a> Declarations<'a> {
    /// Returns the declarations of a file.
    pub fn of(file: &'a FileDescriptorProto) -> Self {
        let mut found = Self::default();
        for (position, message) in (0..).zip(&file.message_type) {
            found.add_message(message.name().to_owned(), inside(&[], step::MESSAGE, position), message);
        }
        for (position, declared) in (0..).zip(&file.enum_type) {
            found.enums.push(Declared {
                name: declared.name().to_owned(),
                path: inside(&[], step::ENUM, position),
                descriptor: declared,
            });
        }
        found
    }

    fn add_message(&mut self, name: String, path: Vec<i32>, message: &'a DescriptorProto) {
        self.messages.push(Declared {
            name: name.clone(),
            path: path.clone(),
            descriptor: message,
        });
        for (position, nested) in (0..).zip(&message.nested_type) {
            if !is_map_entry(nested) {
                self.add_message(
                    format!("{name}.{}", nested.name()),
                    inside(&path, step::NESTED_MESSAGE, position),
                    nested,
                );
            }
        }
        for (position, nested) in (0..).zip(&message.enum_type) {
            self.enums.push(Declared {
                name: format!("{name}.{}", nested.name()),
                path: inside(&path, step::NESTED_ENUM, position),
                descriptor: nested,
            });
        }
    }
}

/// Returns whether a message only represents the entries of a map.
pub fn is_map_entry(message: &DescriptorProto) -> bool {
    message.options.as_ref().is_some_and(|options| options.map_entry())
}
