//! The JSON Schema of the lines that `troupe export -o jsonl` writes: the messages of ExportSession in the JSON form of
//! the command line.

use std::collections::BTreeMap;

use prost::Message as _;
use prost_types::{
    DescriptorProto, FieldDescriptorProto, FileDescriptorSet,
    field_descriptor_proto::{Label, Type},
};
use serde_json::{Map, Value, json};
use troupe_proto::FILE_DESCRIPTOR_SET;

use super::types::map_entry;

/// The file in the reference.
pub const FILE: &str = "export.schema.json";
/// The version of the format that the schema describes.
const FORMAT_VERSION: u32 = 1;

const RECORD: &str = ".troupe.supervisor.v1.ExportSessionResponse";
const HEADER: &str = ".troupe.supervisor.v1.ExportHeader";

/// Returns the text of the schema.
pub fn text() -> String {
    let set = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).unwrap();
    let mut types = Types::default();
    for file in &set.file {
        let package = format!(".{}", file.package());
        types.add(&package, &file.message_type);
        for declared in &file.enum_type {
            let values = declared.value.iter().map(|value| value.name().to_owned()).collect();
            types.enums.insert(format!("{package}.{}", declared.name()), values);
        }
    }
    let mut schemas = BTreeMap::new();
    types.describe(RECORD, &mut schemas);
    let mut record = schemas.remove(RECORD).unwrap();
    record["minProperties"] = json!(1);
    record["maxProperties"] = json!(1);
    let header = schemas.get_mut(HEADER).unwrap();
    header["properties"]["format_version"] = json!({"const": FORMAT_VERSION});
    let schemas: Map<String, Value> = schemas
        .into_iter()
        .map(|(name, schema)| (key(&name).to_owned(), schema))
        .collect();
    record["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    record["title"] = json!("A line of an export of Troupe");
    record["$defs"] = Value::Object(schemas);
    serde_json::to_string_pretty(&record).unwrap() + "\n"
}

/// The declared types by their full names, which begin with a dot.
#[derive(Default)]
struct Types {
    messages: BTreeMap<String, DescriptorProto>,
    enums: BTreeMap<String, Vec<String>>,
}

impl Types {
    fn add(&mut self, scope: &str, messages: &[DescriptorProto]) {
        for message in messages {
            let name = format!("{scope}.{}", message.name());
            self.add(&name, &message.nested_type);
            for declared in &message.enum_type {
                let values = declared.value.iter().map(|value| value.name().to_owned()).collect();
                self.enums.insert(format!("{name}.{}", declared.name()), values);
            }
            self.messages.insert(name, message.clone());
        }
    }

    /// Adds the schema of a message and the schemas of its fields.
    fn describe(&self, name: &str, schemas: &mut BTreeMap<String, Value>) {
        if schemas.contains_key(name) {
            return;
        }
        // Added before its fields, because messages can contain themselves.
        schemas.insert(name.to_owned(), Value::Null);
        let message = &self.messages[name];
        let mut properties = Map::new();
        for field in &message.field {
            let schema = if let Some([_, value]) = map_entry(message, field) {
                json!({"type": "object", "additionalProperties": self.value(value, schemas)})
            } else {
                let value = self.value(field, schemas);
                match field.label() {
                    Label::Repeated => json!({"type": "array", "items": value}),
                    Label::Optional | Label::Required => value,
                }
            };
            properties.insert(field.name().to_owned(), schema);
        }
        schemas.insert(name.to_owned(), json!({"type": "object", "properties": properties}));
    }

    /// Returns the schema of one value of a field.
    fn value(&self, field: &FieldDescriptorProto, schemas: &mut BTreeMap<String, Value>) -> Value {
        match field.r#type() {
            Type::Bool => json!({"type": "boolean"}),
            Type::String => json!({"type": "string"}),
            Type::Bytes => json!({"type": "string", "contentEncoding": "base64"}),
            // NaN and infinities are strings.
            Type::Double | Type::Float => json!({"type": ["number", "string"]}),
            Type::Uint32 | Type::Uint64 | Type::Fixed32 | Type::Fixed64 => json!({"type": "integer", "minimum": 0}),
            Type::Int32 | Type::Int64 | Type::Sint32 | Type::Sint64 | Type::Sfixed32 | Type::Sfixed64 => {
                json!({"type": "integer"})
            }
            Type::Enum => {
                let (name, values) = self.enums.get_key_value(field.type_name()).unwrap();
                // A value of a newer release appears as a number.
                let schema = json!({"anyOf": [{"enum": values}, {"type": "integer"}]});
                schemas.insert(name.clone(), schema);
                reference(name)
            }
            Type::Message | Type::Group => match field.type_name() {
                ".google.protobuf.Timestamp" => json!({"type": "string", "format": "date-time"}),
                ".google.protobuf.Duration" => json!({"type": "string", "pattern": r"^-?[0-9]+(\.[0-9]+)?s$"}),
                ".google.protobuf.Struct" => json!({"type": "object"}),
                ".google.protobuf.Value" => json!(true),
                name => {
                    assert!(name.starts_with(".troupe."), "{name} has a JSON form of its own");
                    self.describe(name, schemas);
                    reference(name)
                }
            },
        }
    }
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/$defs/{}", key(name))})
}

/// Returns the key of a type in `$defs`.
fn key(name: &str) -> &str {
    name.trim_start_matches('.')
}
