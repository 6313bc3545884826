//! The sections of messages and enums: a description, and a table of the fields or values.

use prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto,
    field_descriptor_proto::{Label, Type},
};

use super::{
    comments::{inside, step},
    declarations::{Declared, is_map_entry},
    source::Source,
    table::table,
};

/// Returns the blocks of a message.
pub fn message(source: &Source<'_>, declared: &Declared<'_, DescriptorProto>) -> Vec<String> {
    let rows = field_rows(source, declared);
    vec![
        format!("### {}\n", declared.name),
        source.comment(&declared.path),
        if rows.is_empty() {
            "It has no fields.\n".to_owned()
        } else {
            table(["field", "type", "what"], rows)
        },
    ]
}

/// Returns the blocks of an enum.
pub fn enumeration(source: &Source<'_>, declared: &Declared<'_, EnumDescriptorProto>) -> Vec<String> {
    let rows = (0..)
        .zip(&declared.descriptor.value)
        .map(|(position, value)| {
            [
                format!("`{}`", value.name()),
                value.number().to_string(),
                source.note(&inside(&declared.path, step::VALUE, position)),
            ]
        })
        .collect();
    vec![
        format!("### {}\n", declared.name),
        source.comment(&declared.path),
        table(["value", "number", "what"], rows),
    ]
}

/// Returns a row for each field. The fields of a oneof follow each other, and a row before the first one describes the
/// oneof.
fn field_rows(source: &Source<'_>, declared: &Declared<'_, DescriptorProto>) -> Vec<[String; 3]> {
    let message = declared.descriptor;
    let mut rows = Vec::new();
    let mut current = None;
    for (position, field) in (0..).zip(&message.field) {
        let oneof = oneof(field);
        if let Some(index) = oneof.filter(|_| oneof != current) {
            let size = message.field.iter().filter(|field| self::oneof(field) == oneof).count();
            rows.push([
                format!("`{}`", message.oneof_decl[usize::try_from(index).unwrap()].name()),
                format!("one of the next {size}"),
                source.note(&inside(&declared.path, step::ONEOF, index)),
            ]);
        }
        current = oneof;
        rows.push([
            format!("`{}`", field.name()),
            field_type(source, message, field),
            source.note(&inside(&declared.path, step::FIELD, position)),
        ]);
    }
    rows
}

/// Returns the declared oneof of a field. The oneof that the compiler generates for `optional` does not count.
fn oneof(field: &FieldDescriptorProto) -> Option<i32> {
    field.oneof_index.filter(|_| !field.proto3_optional())
}

fn field_type(source: &Source<'_>, message: &DescriptorProto, field: &FieldDescriptorProto) -> String {
    if let Some([key, value]) = map_entry(message, field) {
        return format!("map of {} to {}", value_type(source, key), value_type(source, value));
    }
    let value = value_type(source, field);
    if field.label() == Label::Repeated {
        format!("repeated {value}")
    } else if field.proto3_optional() {
        format!("optional {value}")
    } else {
        value
    }
}

/// Returns the key and the value of a map; `None` for any other field. The message for a map's entries is nested in the
/// message with the map.
pub fn map_entry<'a>(
    message: &'a DescriptorProto,
    field: &FieldDescriptorProto,
) -> Option<&'a [FieldDescriptorProto; 2]> {
    let (_, name) = field.type_name().rsplit_once('.')?;
    let entry = message
        .nested_type
        .iter()
        .find(|nested| is_map_entry(nested) && nested.name() == name)?;
    entry.field.as_slice().try_into().ok()
}

/// Returns the type of one value.
fn value_type(source: &Source<'_>, field: &FieldDescriptorProto) -> String {
    match field.r#type() {
        Type::Message | Type::Enum => source.links.to_type(field.type_name()),
        scalar => scalar.as_str_name().trim_start_matches("TYPE_").to_lowercase(),
    }
}
