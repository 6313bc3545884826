//! The rules for templates: parsing, precedence, selection and prompts. The code is pure: text in, values out, with no
//! files, no clock and no wire types.
//!
//! The directory of a template determines its [`family`], and the family determines the dialect or the possible
//! dialects. The module of the dialect ([`role`], [`profile`], [`subagent`], [`graph`], [`foreign`]) parses the file's
//! text into a [`template::TemplateFile`]. The [`catalog`] decides which file holds a name. [`list`] and [`resolve`]
//! answer queries from the catalogue. [`lint`] checks a single text.

pub mod agents;
pub mod catalog;
pub mod changes;
pub mod describe;
pub mod diagnostic;
pub mod dialect;
pub mod digest;
pub mod effort;
pub mod encoding;
pub mod error;
pub mod extension;
pub mod family;
pub mod finding_kind;
pub mod foreign;
pub mod frontmatter;
pub mod graph;
pub mod keys;
pub mod lint;
pub mod list;
pub mod lists;
pub mod malformed;
pub mod models;
pub mod name;
pub mod persona;
pub mod profile;
pub mod prompt;
pub mod resolve;
pub mod resolved;
pub mod role;
pub mod route;
pub mod rules;
pub mod sandbox;
pub mod selection;
pub mod subagent;
pub mod template;
pub mod toml;
pub mod yaml;
