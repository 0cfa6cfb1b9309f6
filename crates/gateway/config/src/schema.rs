//! A JSON schema of the configuration file, generated from the table of options, for completion and
//! checks in editors.

use crate::config::Config;
use crate::option::group::OptionGroup;
use crate::option::option_type::Kind;
use crate::option::spec::{OptionDefault, OptionSpec, paragraph};
use crate::section::Section;
use serde_json::{Map, Value, json};

/// Returns the schema (draft 7, which editors know) as text. The program itself checks more than a
/// schema can: options that depend on each other, files, addresses.
pub fn schema() -> String {
    let of_program = Config::PROCESS_OPTIONS
        .iter()
        .flat_map(|group| group.options);
    let mut properties: Map<String, Value> = of_program.map(property).collect();
    let mut definitions = Map::new();
    for section in Section::ALL {
        let name = section.name();
        let item = json!({ "$ref": format!("#/definitions/{name}") });
        properties.insert(name.to_owned(), json!({ "type": "array", "items": item }));
        definitions.insert(name.to_owned(), table(&section.options()));
    }
    let schema = json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Configuration of Dormouse",
        "type": "object",
        "additionalProperties": false,
        "properties": properties,
        "definitions": definitions,
    });
    format!("{schema:#}\n")
}

fn table(group: &OptionGroup) -> Value {
    let is_required = |spec: &&OptionSpec| matches!(spec.default, OptionDefault::Required(_));
    let required: Vec<&str> = group
        .options
        .iter()
        .filter(is_required)
        .map(|spec| spec.name)
        .collect();
    let properties: Map<String, Value> = group.options.iter().map(property).collect();
    json!({
        "type": "object",
        "description": paragraph(group.about),
        "additionalProperties": false,
        "properties": properties,
        "required": required,
    })
}

fn property(spec: &OptionSpec) -> (String, Value) {
    let one = value(spec.kind, spec.range);
    let mut property = if spec.kind.list {
        // A list of one needs no brackets.
        json!({ "anyOf": [one, { "type": "array", "items": one }] })
    } else {
        one
    };
    property["description"] = json!(spec.explanation());
    if let OptionDefault::Is(text) = spec.default
        && !["", "none"].contains(&text)
    {
        let bare = serde_json::from_str(text).ok().filter(|_| spec.kind.bare);
        property["default"] = bare.unwrap_or_else(|| json!(text));
    }
    (spec.name.to_owned(), property)
}

/// Returns the schema of one value of this kind. The kind's placeholder in `--help` names its
/// forms.
fn value(kind: &Kind, range: Option<(&str, &str)>) -> Value {
    let mut forms = Vec::new();
    let forms_named: Vec<&str> = kind.placeholder.split('|').collect();
    let has = |name: &str| forms_named.contains(&name);
    if !kind.choices.is_empty() {
        // TLS versions look like numbers, so 1.3 is accepted as well as "1.3".
        let numbers = kind
            .choices
            .iter()
            .filter_map(|word| word.parse::<f64>().ok());
        let words = kind.choices.iter().map(|word| json!(word));
        forms.push(
            json!({ "enum": words.chain(numbers.map(|number| json!(number))).collect::<Vec<_>>() }),
        );
    } else if has("true") {
        forms.push(json!({ "type": "boolean" }));
    } else {
        if has("N") || has("SIZE") || has("CODE-CODE") {
            forms.push(whole_number(range));
        }
        let words: Vec<&&str> = forms_named.iter().filter(|form| is_word(form)).collect();
        if !has("N") {
            forms.push(json!({ "type": "string" }));
        } else if !words.is_empty() {
            forms.push(json!({ "enum": words }));
        }
    }
    if !kind.keys.is_empty() {
        let keys: Map<String, Value> = kind
            .keys
            .iter()
            .map(|(name, kind)| ((*name).to_owned(), value(kind, None)))
            .collect();
        forms.push(json!({ "type": "object", "additionalProperties": false, "properties": keys }));
    }
    if !forms.iter().any(|form| form["type"] == "string") {
        forms.push(json!({ "type": "string", "pattern": "\\$\\{", "description": "an environment variable" }));
    }
    match forms.as_mut_slice() {
        [only] => only.take(),
        _ => json!({ "anyOf": forms }),
    }
}

/// Returns the schema of a whole number, with its range if the bounds are whole numbers.
fn whole_number(range: Option<(&str, &str)>) -> Value {
    let mut form = json!({ "type": "integer", "minimum": 0 });
    if let Some((Ok(least), Ok(greatest))) =
        range.map(|(least, greatest)| (least.parse::<u64>(), greatest.parse::<u64>()))
    {
        form["minimum"] = json!(least);
        form["maximum"] = json!(greatest);
    }
    form
}

/// Returns whether a form is a literal word, such as `auto`.
fn is_word(form: &str) -> bool {
    form.bytes().all(|byte| byte.is_ascii_lowercase())
}
