//! Reads the source of a crate into [`Modules`].

use super::modules::{Meaning, Mention, Modules};
use crate::tree::{Tree, directory_of, join};
use proc_macro2::{Spacing, TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, Item, UseTree, Visibility};

/// Reads the crate whose root is the file `root`.
pub(super) fn read(tree: &Tree, root: &str) -> Result<Modules, String> {
    let mut modules = Modules::new();
    let module = modules.add(root, None);
    let mut reader = Reader {
        tree,
        modules,
        module,
        children: directory_of(root).to_string(),
        block_depth: 0,
        error: None,
    };
    reader.file(root);
    match reader.error {
        Some(error) => Err(error),
        None => Ok(reader.modules),
    }
}

struct Reader<'a> {
    tree: &'a Tree,
    modules: Modules,
    /// The module whose code is being read.
    module: usize,
    /// The directory of its children.
    children: String,
    /// Number of code blocks around the current position: items inside blocks are not the module's.
    block_depth: usize,
    error: Option<String>,
}

impl Reader<'_> {
    fn file(&mut self, path: &str) {
        let Some(file) = self.tree.get(path) else {
            self.error = Some(format!("{path}: not found"));
            return;
        };
        match syn::parse_file(&file.text) {
            Ok(parsed) => self.visit_file(&parsed),
            Err(error) => {
                self.error = Some(format!("{path}:{}: {error}", error.span().start().line))
            }
        }
    }

    /// Returns the file that `#[path]` names, and the directory of its children.
    fn beside(&self, path: &str) -> (String, String) {
        let here = &self.modules.get(self.module).file;
        let file = join(directory_of(here), path);
        let directory = directory_of(&file).to_string();
        (file, directory)
    }

    fn declare(&mut self, name: &syn::Ident) {
        if self.block_depth == 0 {
            let meaning = Meaning::Item(self.module);
            self.modules
                .declare(self.module, &name.to_string(), meaning);
        }
    }

    fn mention(&mut self, path: Vec<String>, line: usize, is_reexport: bool) {
        let mention = Mention {
            path,
            line,
            is_reexport,
        };
        self.modules.mention(self.module, mention);
    }

    /// Declares and mentions what one `use` imports.
    fn import(&mut self, prefix: &[String], tree: &UseTree, is_reexport: bool) {
        let (last, alias) = match tree {
            UseTree::Path(path) => {
                let deeper = joined(prefix, &path.ident);
                return self.import(&deeper, &path.tree, is_reexport);
            }
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.import(prefix, tree, is_reexport);
                }
                return;
            }
            UseTree::Glob(_) => return self.modules.import_all(self.module, prefix.to_vec()),
            UseTree::Name(name) => (&name.ident, &name.ident),
            UseTree::Rename(rename) => (&rename.ident, &rename.rename),
        };
        let line = last.span().start().line;
        let (path, alias) = match prefix.last() {
            // `a::{self}` imports `a`.
            Some(own) if last == "self" && alias == "self" => (prefix.to_vec(), own.clone()),
            Some(_) if last == "self" => (prefix.to_vec(), alias.to_string()),
            _ => (joined(prefix, last), alias.to_string()),
        };
        let meaning = Meaning::Import(path.clone());
        self.modules.declare(self.module, &alias, meaning);
        self.mention(path, line, is_reexport);
    }

    /// Reads paths in tokens that only a macro can parse.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut line = 0;
        // Colons since the last word; a word after `.` is a method or a field.
        let (mut colons, mut after_dot) = (0, false);
        for token in tokens {
            match token {
                TokenTree::Ident(word) => {
                    if colons != 2 {
                        self.token_path(std::mem::take(&mut path), line, false);
                    }
                    if !after_dot {
                        line = word.span().start().line;
                        path.push(word.to_string());
                    }
                    (colons, after_dot) = (0, false);
                }
                TokenTree::Punct(mark) => {
                    let in_pair = mark.spacing() == Spacing::Joint || colons == 1;
                    colons = if mark.as_char() == ':' && in_pair {
                        colons + 1
                    } else {
                        0
                    };
                    after_dot = mark.as_char() == '.';
                }
                TokenTree::Group(group) => {
                    self.token_path(std::mem::take(&mut path), line, true);
                    self.tokens(group.stream());
                    (colons, after_dot) = (0, false);
                }
                TokenTree::Literal(_) => (colons, after_dot) = (0, false),
            }
        }
        self.token_path(path, line, false);
    }

    fn token_path(&mut self, path: Vec<String>, line: usize, is_called: bool) {
        if path.len() > 1
            || path
                .first()
                .is_some_and(|word| is_called || !is_lower(word))
        {
            self.mention(path, line, false);
        }
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if is_for_tests(attributes(item)) {
            return;
        }
        match item {
            Item::Const(item) => self.declare(&item.ident),
            Item::Enum(item) => self.declare(&item.ident),
            Item::Fn(item) => self.declare(&item.sig.ident),
            Item::Static(item) => self.declare(&item.ident),
            Item::Struct(item) => self.declare(&item.ident),
            Item::Trait(item) => self.declare(&item.ident),
            Item::Type(item) => self.declare(&item.ident),
            Item::Union(item) => self.declare(&item.ident),
            Item::Macro(item) => item.ident.iter().for_each(|name| self.declare(name)),
            _ => {}
        }
        visit::visit_item(self, item);
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        let name = item.ident.to_string();
        let directory = format!("{}/{name}", self.children);
        let (file, directory) = match (&item.content, path_attribute(&item.attrs)) {
            (Some(_), _) => (self.modules.get(self.module).file.clone(), directory),
            (None, Some(path)) => self.beside(&path),
            (None, None) if self.tree.get(&format!("{directory}.rs")).is_some() => {
                (format!("{directory}.rs"), directory)
            }
            (None, None) => (format!("{directory}/mod.rs"), directory),
        };
        let child = self.modules.add(&file, Some(self.module));
        self.modules
            .declare(self.module, &name, Meaning::Module(child));
        let around = (
            std::mem::replace(&mut self.module, child),
            std::mem::replace(&mut self.children, directory),
        );
        match &item.content {
            Some(_) => visit::visit_item_mod(self, item),
            None => self.file(&file),
        }
        (self.module, self.children) = around;
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if item.leading_colon.is_none() {
            let is_reexport = !matches!(item.vis, Visibility::Inherited);
            self.import(&[], &item.tree, is_reexport);
        }
    }

    fn visit_impl_item(&mut self, item: &'ast syn::ImplItem) {
        if !matches!(item, syn::ImplItem::Fn(function) if is_for_tests(&function.attrs)) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_block(&mut self, block: &'ast syn::Block) {
        self.block_depth += 1;
        visit::visit_block(self, block);
        self.block_depth -= 1;
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let words: Vec<String> = path
            .segments
            .iter()
            .map(|segment| segment.ident.to_string())
            .collect();
        // A single word in lower case is usually a local variable; calls are read below.
        if path.leading_colon.is_none() && (words.len() > 1 || !is_lower(&words[0])) {
            self.mention(words, line_of(path), false);
        }
        visit::visit_path(self, path);
    }

    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        if let Expr::Path(function) = &*call.func
            && let Some(name) = function.path.get_ident()
        {
            self.mention(vec![name.to_string()], line_of(&function.path), false);
        }
        visit::visit_expr_call(self, call);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        if let Some(name) = call.path.get_ident() {
            self.mention(vec![name.to_string()], line_of(&call.path), false);
        }
        self.tokens(call.tokens.clone());
        visit::visit_macro(self, call);
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        if let syn::Meta::List(list) = &attribute.meta {
            self.tokens(list.tokens.clone());
        }
    }
}

fn joined(prefix: &[String], last: &syn::Ident) -> Vec<String> {
    prefix
        .iter()
        .cloned()
        .chain(std::iter::once(last.to_string()))
        .collect()
}

fn line_of(path: &syn::Path) -> usize {
    path.segments
        .last()
        .map_or(0, |segment| segment.ident.span().start().line)
}

fn is_lower(word: &str) -> bool {
    word.starts_with(|first: char| !first.is_uppercase())
}

/// Returns whether the item is compiled for tests only.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let Ok(list) = attribute.meta.require_list() else {
            return attribute.path().is_ident("test");
        };
        let condition = list.tokens.to_string();
        let needs_test = condition == "test" || condition.starts_with("all (test");
        list.path.is_ident("cfg") && needs_test
    })
}

/// Returns the value of `#[path = "…"]`.
fn path_attribute(attributes: &[Attribute]) -> Option<String> {
    let path = attributes
        .iter()
        .find(|attribute| attribute.path().is_ident("path"))?;
    match &path.meta.require_name_value().ok()?.value {
        Expr::Lit(literal) => match &literal.lit {
            syn::Lit::Str(path) => Some(path.value()),
            _ => None,
        },
        _ => None,
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}
