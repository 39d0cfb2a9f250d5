mod fold;
mod reference;

use super::{ChatTemplate, Date, RenderRequest, TemplateError, python};
use serde_json::{Value, json};

pub(super) const SMOLLM2: &str = concat!(
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}",
    "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face",
    "<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + ",
    "'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}",
    "{{ '<|im_start|>assistant\n' }}{% endif %}",
);

pub(super) fn template(source: &str) -> ChatTemplate {
    let specials = vec![("bos_token".to_owned(), "<s>".to_owned())];
    ChatTemplate::compile(Some(source), specials, None).unwrap()
}

pub(super) fn render(
    template: &ChatTemplate,
    messages: &[Value],
    tools: &[Value],
) -> Result<String, TemplateError> {
    template.render(&RenderRequest { messages, tools, add_generation_prompt: false })
}

pub(super) fn tiny() -> ChatTemplate {
    let path = "/../../tests/fixtures/tiny-qwen3/chat_template.jinja";
    template(&std::fs::read_to_string(env!("CARGO_MANIFEST_DIR").to_owned() + path).unwrap())
}

#[test]
fn errors_are_readable() {
    let user = [json!({"role": "user", "content": "x"})];
    let refusing = template("{{ raise_exception('Roles must alternate') }}");
    let refused = render(&refusing, &user, &[]).unwrap_err();
    assert_eq!(refused, TemplateError::Refused("Roles must alternate".into()));
    let failing = template("a\n{{ 'x' + none }}");
    let failed = render(&failing, &user, &[]).unwrap_err().to_string();
    assert!(failed.contains("line 2") || failed.contains(":2"), "{failed}");
    assert_eq!(render(&failing, &[], &[]), Err(TemplateError::Empty));
    let broken = ChatTemplate::compile(Some("{% if %}"), vec![], None).unwrap_err();
    assert!(broken.contains("syntax error"), "{broken}");
    let absent = ChatTemplate::compile(None, vec![], None).unwrap();
    assert_eq!(render(&absent, &user, &[]), Err(TemplateError::Absent));
    assert_eq!(absent.source(), None);
}

#[test]
fn wrong_messages_are_named() {
    let good = json!({"role": "user", "content": "x"});
    for bad in [
        json!("x"),
        json!({"content": "x"}),
        json!({"role": "user", "content": 5}),
        json!({"role": "user", "content": [{"type": "image_url", "image_url": {}}]}),
        json!({"role": "assistant", "content": "", "tool_calls": {}}),
        json!({"role": "assistant", "content": "", "tool_calls": [{"function": {}}]}),
    ] {
        for template in [tiny(), template(SMOLLM2)] {
            let result = render(&template, &[good.clone(), bad.clone()], &[]);
            let named = matches!(result, Err(TemplateError::Message { index: 1, .. }));
            assert!(named, "{bad}: {result:?}");
        }
    }
}

#[test]
fn endless_templates_end() {
    let user = [json!({"role": "user", "content": "x"})];
    let loops = "{% for a in range(9999) %}".repeat(4) + "x" + &"{% endfor %}".repeat(4);
    let mut endless = template("");
    endless.environment.set_fuel(Some(100_000));
    endless.environment.add_template_owned("chat", loops).unwrap();
    assert!(matches!(render(&endless, &user, &[]), Err(TemplateError::Failed(_))));
}

#[test]
fn bos_and_the_date() {
    let user = [json!({"role": "user", "content": "x"})];
    let dated = "{{ bos_token }}{{ pad_token }}{{ strftime_now('%d %b %Y, %A %-d.%-m. %j %q%%') }}";
    let today = Date { year: 2026, month: 11, day: 5 };
    let specials = vec![("bos_token".to_owned(), "<s>".to_owned())];
    let with = ChatTemplate::compile(Some(dated), specials, Some(today)).unwrap();
    let text = render(&with, &user, &[]).unwrap();
    assert_eq!(text, "<s>05 Nov 2026, Thursday 5.11. 309 %q%");
    assert!(matches!(render(&template(dated), &user, &[]), Err(TemplateError::Failed(_))));
    let optional = "{% if strftime_now is defined %}{{ strftime_now('%F') }}{% else %}-{% endif %}";
    assert_eq!(render(&template(optional), &user, &[]).unwrap(), "-");
}

#[test]
fn generation_marks_render_as_their_content() {
    let marked = "{%- generation -%} a {% endgeneration %}{% x";
    let plain = "{%- if true -%} a {% endif %}{% x";
    assert_eq!(python::without_generation_marks(marked), plain);
    assert_eq!(python::without_generation_marks("{{ generation }}"), "{{ generation }}");
}

#[test]
fn text_parts_are_one_text() {
    let parts = json!({"role": "user", "content": [
        {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": "b"},
    ]});
    let whole = json!({"role": "user", "content": "ab", "metadata": {"x": 1}});
    for template in [tiny(), template(SMOLLM2)] {
        let text = render(&template, std::slice::from_ref(&parts), &[]).unwrap();
        assert_eq!(text, render(&template, std::slice::from_ref(&whole), &[]).unwrap());
    }
}
