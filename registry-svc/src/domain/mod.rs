//! What templates mean: parsing, precedence, selection, prompts. Pure: text in, values out; no files, no clock, no wire.
//!
//! The way of a template: a dialect ([`role`], [`graph`]) turns a file's text into a [`template::TemplateFile`]; the
//! [`catalog`] decides which file has a name; [`list`] and [`resolve`] answer from the catalogue.

pub mod catalog;
pub mod diagnostic;
pub mod digest;
pub mod effort;
pub mod error;
pub mod frontmatter;
pub mod graph;
pub mod keys;
pub mod list;
pub mod lists;
pub mod malformed;
pub mod models;
pub mod name;
pub mod persona;
pub mod prompt;
pub mod resolve;
pub mod resolved;
pub mod role;
pub mod sandbox;
pub mod selection;
pub mod template;
pub mod yaml;
