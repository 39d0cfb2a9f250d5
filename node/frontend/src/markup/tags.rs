//! The marks of each format, and how calls between them are read.

use super::scan::{self, Until};
use crate::tools::xml::{self, Xml};
use crate::tools::{Call, Tools, json, python};
use serde_json::{Map, Value};

/// A format made of marks.
#[derive(Debug)]
pub(crate) struct Tags {
    /// What opens and closes reasoning, at the beginning of an answer.
    pub(crate) reasoning: &'static [(&'static str, &'static str)],
    /// What opens a call.
    pub(crate) calls: &'static [Opener],
    /// A call that nothing opens; it stands at the beginning of an answer.
    pub(crate) bare: Option<&'static Opener>,
    /// Opens a section of calls and says nothing by itself.
    pub(crate) sections: &'static [&'static str],
    /// Closes what was opened; means nothing where nothing is open.
    pub(crate) closers: &'static [&'static str],
    /// Marks within calls: left out where a call turns out to be text.
    pub(crate) inner: &'static [&'static str],
    /// Stands around what is said after reasoning.
    pub(crate) frame: &'static [&'static str],
}

/// A mark that opens a call.
#[derive(Debug)]
pub(crate) struct Opener {
    pub(crate) tag: &'static str,
    /// The tag says something, so that it is read and shown with what follows it.
    pub(crate) kept: bool,
    pub(crate) until: Until,
    /// Marks that end it when it was never closed.
    pub(crate) next: &'static [&'static str],
    /// Reads the text between the marks; the flag says whether it was closed.
    pub(crate) read: fn(&str, bool, &Tools) -> Option<Vec<Call>>,
}

impl Tags {
    /// Whether `text` is one of the format's marks, spelled as a token.
    pub(crate) fn has(&self, text: &str) -> bool {
        let pairs = self.reasoning.iter().flat_map(|(open, close)| [*open, *close]);
        let lists = [self.sections, self.closers, self.inner, self.frame];
        let calls = self.calls.iter().map(|opener| opener.tag);
        pairs.chain(calls).chain(lists.into_iter().flatten().copied()).any(|tag| tag == text)
    }
}

const THINK: (&str, &str) = ("<think>", "</think>");

/// `<tool_call>` around whatever its kin put into it.
const TOOL_CALL: Opener = Opener {
    tag: scan::OPEN,
    kept: false,
    until: Until::ToolCall,
    next: &[scan::OPEN],
    read: read_tool_call,
};

/// Hermes and Qwen, and GLM, whose calls differ only in what stands between the tags.
pub(crate) const HERMES: Tags = Tags {
    reasoning: &[THINK],
    calls: &[TOOL_CALL],
    bare: None,
    sections: &[],
    closers: &[scan::CLOSE],
    inner: &[],
    frame: &[],
};

/// Qwen3-Coder, which sometimes leaves out the outer tag.
pub(crate) const QWEN_CODER: Tags = Tags {
    calls: &[
        TOOL_CALL,
        Opener {
            tag: xml::FUNCTION.open,
            kept: true,
            until: Until::Xml(&xml::FUNCTION),
            next: &[scan::OPEN, scan::CLOSE, xml::FUNCTION.open],
            read: |text, _, tools| xml::FUNCTION.read(text, tools),
        },
    ],
    ..HERMES
};

/// Llama 3 and 4.
pub(crate) const LLAMA: Tags = Tags {
    reasoning: &[THINK],
    calls: &[
        Opener {
            tag: "<|python_tag|>",
            kept: false,
            until: Until::Balance,
            next: &["<|python_tag|>"],
            read: read_python_tag,
        },
        Opener {
            tag: "<|python_start|>",
            kept: false,
            until: Until::Balance,
            next: &["<|python_start|>", "<|python_end|>"],
            read: read_python_tag,
        },
    ],
    bare: Some(&Opener {
        tag: "",
        kept: true,
        until: Until::Balance,
        next: &[],
        read: |text, _, tools| {
            json::read_bare(text, tools).or_else(|| python::read_known(text, tools))
        },
    }),
    sections: &[],
    closers: &["<|python_end|>"],
    inner: &[],
    frame: &[],
};

const MISTRAL_CALLS: &str = "[TOOL_CALLS]";
const MISTRAL_ID: &str = "[CALL_ID]";
const MISTRAL_ARGS: &str = "[ARGS]";

/// Mistral: a list in JSON, or a name and its arguments.
pub(crate) const MISTRAL: Tags = Tags {
    reasoning: &[("[THINK]", "[/THINK]"), THINK],
    calls: &[Opener {
        tag: MISTRAL_CALLS,
        kept: false,
        until: Until::Balance,
        next: &[MISTRAL_CALLS],
        read: read_mistral,
    }],
    bare: None,
    sections: &[],
    closers: &[],
    inner: &[MISTRAL_ID, MISTRAL_ARGS],
    frame: &[],
};

const DEEPSEEK_CALL: &str = "<｜tool▁call▁begin｜>";
const DEEPSEEK_CALL_END: &str = "<｜tool▁call▁end｜>";
const DEEPSEEK_CALLS_END: &str = "<｜tool▁calls▁end｜>";
const DEEPSEEK_SEP: &str = "<｜tool▁sep｜>";

/// DeepSeek V3, V3.1 and R1.
pub(crate) const DEEPSEEK: Tags = Tags {
    reasoning: &[THINK],
    calls: &[Opener {
        tag: DEEPSEEK_CALL,
        kept: false,
        until: Until::Mark(DEEPSEEK_CALL_END),
        next: &[DEEPSEEK_CALL, DEEPSEEK_CALLS_END],
        read: read_deepseek,
    }],
    bare: None,
    sections: &[crate::format::DEEPSEEK_CALLS],
    closers: &[DEEPSEEK_CALL_END, DEEPSEEK_CALLS_END],
    inner: &[DEEPSEEK_SEP],
    frame: &[],
};

const KIMI_CALL: &str = "<|tool_call_begin|>";
const KIMI_CALL_END: &str = "<|tool_call_end|>";
const KIMI_CALLS_END: &str = "<|tool_calls_section_end|>";
const KIMI_ARGUMENTS: &str = "<|tool_call_argument_begin|>";

/// Kimi K2.
pub(crate) const KIMI: Tags = Tags {
    reasoning: &[THINK],
    calls: &[Opener {
        tag: KIMI_CALL,
        kept: false,
        until: Until::Mark(KIMI_CALL_END),
        next: &[KIMI_CALL, KIMI_CALLS_END],
        read: read_kimi,
    }],
    bare: None,
    sections: &[crate::format::KIMI_CALLS],
    closers: &[KIMI_CALL_END, KIMI_CALLS_END],
    inner: &[KIMI_ARGUMENTS],
    frame: &[],
};

/// MiniMax.
pub(crate) const MINIMAX: Tags = Tags {
    reasoning: &[THINK],
    calls: &[Opener {
        tag: xml::INVOKE.open,
        kept: true,
        until: Until::Xml(&xml::INVOKE),
        next: &[crate::format::MINIMAX_CALLS, xml::INVOKE.outer, xml::INVOKE.open],
        read: |text, _, tools| xml::INVOKE.read(text, tools),
    }],
    bare: None,
    sections: &[crate::format::MINIMAX_CALLS],
    closers: &[xml::INVOKE.outer],
    inner: &[],
    frame: &[],
};

/// Granite 3, and Phi 4, which closes its lists.
pub(crate) const GRANITE: Tags = Tags {
    reasoning: &[THINK, ("Here is my thought process:", "Here is my response:")],
    calls: &[
        Opener {
            tag: crate::format::GRANITE_CALLS,
            kept: false,
            until: Until::Balance,
            next: &[crate::format::GRANITE_CALLS],
            read: |text, _, _| json::read_calls(text),
        },
        TOOL_CALL,
    ],
    bare: None,
    sections: &[],
    closers: &["<|/tool_call|>", scan::CLOSE],
    inner: &[],
    frame: &["<response>", "</response>"],
};

fn read_tool_call(text: &str, closed: bool, tools: &Tools) -> Option<Vec<Call>> {
    let xml: &Xml = match text.trim_start().as_bytes().first()? {
        b'{' | b'[' | b'"' => return json::read_calls(text),
        b'<' => &xml::FUNCTION,
        // Only the mark around it says that such a call is whole.
        _ if closed => &xml::ARGUMENTS,
        _ => return None,
    };
    xml.read(text, tools)
}

fn read_python_tag(text: &str, _: bool, tools: &Tools) -> Option<Vec<Call>> {
    json::read_calls(text).or_else(|| python::read(text, tools))
}

/// `name[CALL_ID]…[ARGS]{…}`, of which the id says nothing here.
fn read_mistral(text: &str, _: bool, _: &Tools) -> Option<Vec<Call>> {
    let text = text.trim();
    if text.starts_with(['[', '{']) {
        return json::read_calls(text);
    }
    let (head, _) = text.split_once('{')?;
    // What stands between the mark and the arguments would be lost with a call.
    if head.rsplit_once(MISTRAL_ARGS).is_some_and(|(_, between)| !between.trim().is_empty()) {
        return None;
    }
    let arguments = json::read_arguments(text.get(head.len()..)?)?;
    let name = head.split('[').next().unwrap_or_default();
    Some(vec![Call::new(name.trim(), arguments)?])
}

/// `function<sep>name` and the arguments in a fenced block (V3, R1), or `name<sep>arguments` (V3.1).
fn read_deepseek(text: &str, closed: bool, _: &Tools) -> Option<Vec<Call>> {
    let (first, second) = text.split_once(DEEPSEEK_SEP)?;
    let (name, arguments) = match second.split_once("```") {
        Some((name, fenced)) if !name.contains('{') => {
            let fenced = fenced.trim_end().strip_suffix("```").unwrap_or(fenced);
            (name, fenced.strip_prefix("json").unwrap_or(fenced))
        }
        _ => (first, second),
    };
    Some(vec![Call::new(name.trim(), read_or_none(arguments, closed)?)?])
}

/// `functions.name:0` and the arguments.
fn read_kimi(text: &str, closed: bool, _: &Tools) -> Option<Vec<Call>> {
    let (id, arguments) = text.split_once(KIMI_ARGUMENTS)?;
    let id = id.trim();
    let name = id.rsplit_once(':').map_or(id, |(name, _)| name);
    let name = name.strip_prefix("functions.").unwrap_or(name);
    Some(vec![Call::new(name, read_or_none(arguments, closed)?)?])
}

/// Arguments in JSON; a closed call may have none at all.
fn read_or_none(text: &str, closed: bool) -> Option<Map<String, Value>> {
    if closed && text.trim().is_empty() { Some(Map::new()) } else { json::read_arguments(text) }
}
