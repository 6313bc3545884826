//! What templates mean: parsing, precedence, selection, prompts. Pure: text in, values out; no files, no clock, no wire.
//!
//! The way of a template: the [`family`] of its directory picks the dialect ([`role`], [`profile`], [`subagent`],
//! [`graph`], [`foreign`]), which turns the file's text into a [`template::TemplateFile`]; the [`catalog`] decides which
//! file has a name; [`list`] and [`resolve`] answer from the catalogue. [`lint`] checks one text by itself.

pub mod agents;
pub mod catalog;
pub mod changes;
pub mod describe;
pub mod diagnostic;
pub mod digest;
pub mod effort;
pub mod encoding;
pub mod error;
pub mod extension;
pub mod family;
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
