use super::*;

/// As templates write calls and prompts, in a few lines each.
const TEMPLATES: [(&str, Format); 16] = [
    (
        "{{- '<tool_call>\\n{\"name\": \"' ~ call.name ~ '\", \"arguments\": ' }}\
         {{- call.arguments | tojson }}{{- '}\\n</tool_call>' }}{{ '<|im_start|>assistant\\n' }}",
        Format::Hermes,
    ),
    ("{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>' }}", Format::Hermes),
    ("", Format::Hermes),
    (
        "{{- '\\n<tool_call>\\n<function=' + call.name + '>\\n' }}{%- for k, v in args %}\
         {{- '<parameter=' + k + '>\\n' ~ v ~ '\\n</parameter>\\n' }}{%- endfor %}",
        Format::QwenCoder,
    ),
    (
        "{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' -}}\
         {{- '{\"name\": \"' + call.name + '\", \"parameters\": ' }}{{- '<|python_tag|>' }}",
        Format::Llama,
    ),
    (
        "{{- 'Respond in the format [func_name1(params_name1=params_value1)]' }}\
         {{- '<|start_header_id|>ipython<|end_header_id|>' }}",
        Format::Llama,
    ),
    ("{{- '<|header_start|>assistant<|header_end|>\\n\\n<|python_start|>[' }}", Format::Llama),
    (
        "{{ '<|start_header_id|>assistant<|end_header_id|>' }}<tool_call>{{ call | tojson }}",
        Format::Hermes,
    ),
    ("{{- '[TOOL_CALLS] [' }}{{- out[:-1] }}{{- ', \"id\": \"' }}", Format::Mistral),
    ("{{- '[TOOL_CALLS]' + name + '[ARGS]' + arguments }}[THINK]", Format::Mistral),
    (
        "{{'<｜Assistant｜><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>' + tool['type'] + \
         '<｜tool▁sep｜>' + name + '\\n```json\\n' + arguments }}",
        Format::DeepSeek,
    ),
    (
        "{{- '<|start|>assistant to=functions.' + name + '<|channel|>commentary json<|message|>' }}",
        Format::Harmony,
    ),
    (
        "<|tool_calls_section_begin|><|tool_call_begin|>{{ id }}<|tool_call_argument_begin|>\
         {{ arguments }}<|tool_call_end|><|tool_calls_section_end|><think>",
        Format::Kimi,
    ),
    (
        "{{ '\\n<tool_call>' + tc.name }}<arg_key>{{ k }}</arg_key>\n<arg_value>{{ v }}</arg_value>",
        Format::Glm,
    ),
    (
        "{%- set open = '<minimax:tool_call>' -%}{{- '<invoke name=\"' + name + '\">' }}",
        Format::MiniMax,
    ),
    (
        "<|start_of_role|>system<|end_of_role|>respond only with <|tool_call|> followed by a list",
        Format::Granite,
    ),
];

#[test]
fn templates_tell_the_format() {
    for (template, format) in TEMPLATES {
        assert_eq!(Format::detect(template, |_| false), format, "{template}");
    }
    for (name, format) in Format::NAMED {
        assert!(TEMPLATES.iter().any(|(_, other)| *other == format), "{name} is tested");
        assert_eq!(name.parse(), Ok(format));
    }
    let unknown = "hermit".parse::<Format>().unwrap_err().to_string();
    assert!(unknown.contains("hermit") && unknown.contains("qwen-coder"), "{unknown}");
}

#[test]
fn a_template_without_calls_leaves_it_to_the_vocabulary() {
    let plain = "{{ '[INST]' + m.content + '[/INST]' }}";
    assert_eq!(Format::detect(plain, |token| token == "[TOOL_CALLS]"), Format::Mistral);
    assert_eq!(Format::detect(plain, |token| token == "<arg_key>"), Format::Glm);
    assert_eq!(Format::detect(plain, |token| token == "<|channel|>"), Format::Hermes);
    // A tune of one family that was taught the calls of another.
    let hermes = "<tool_call>{{ call | tojson }}</tool_call>";
    assert_eq!(Format::detect(hermes, |token| token == "<|start_header_id|>"), Format::Hermes);
}

#[test]
fn the_model_decides() {
    assert_eq!(Format::of(&crate::testing::tiny()), Format::Hermes);
}

#[test]
fn the_end_of_a_prompt_may_open_reasoning() {
    for (format, text, close) in [
        (Format::Hermes, "<|im_start|>assistant\n<think>\n", Some("</think>")),
        (Format::Hermes, "<|im_start|>assistant\n<think>\n\n</think>\n\n", None),
        (Format::DeepSeek, "<｜Assistant｜><think>\n", Some("</think>")),
        (Format::DeepSeek, "<｜Assistant｜></think>", None),
        (Format::Glm, "<|assistant|>\n<think>", Some("</think>")),
        (Format::Kimi, "<|im_assistant|>assistant<|im_middle|>", None),
        (Format::MiniMax, "]~b]ai\n<think>\n", Some("</think>")),
        (Format::Mistral, "hi[/INST][THINK]", Some("[/THINK]")),
        (Format::Mistral, "hi[/INST]", None),
        (Format::Harmony, "<|start|>assistant", None),
        (Format::Harmony, "<|start|>assistant<|channel|>analysis<|message|>", Some("<|end|>")),
    ] {
        assert_eq!(format.thinks_at_end_of(text), close, "{format:?} {text}");
    }
}
