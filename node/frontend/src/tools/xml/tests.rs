use super::*;
use crate::testing::tools;

fn calls(xml: &Xml, text: &str) -> Option<Vec<(String, String)>> {
    Some(xml.read(text, &tools())?.into_iter().map(|call| (call.name, call.arguments)).collect())
}

fn one(name: &str, arguments: &str) -> (String, String) {
    (name.to_owned(), arguments.to_owned())
}

#[test]
fn the_three_forms() {
    let function = "<function=w>\n<parameter=city>\n007\n</parameter>\n<parameter=n>\n3\n</parameter>\n\
                    </function>\n<function=now></function>";
    let invoke = "<invoke name=\"w\">\n<parameter name=\"city\">007</parameter>\n\
                  <parameter name=\"n\">3</parameter>\n</invoke>\n<invoke name=\"now\">\n</invoke>";
    let both = vec![one("w", r#"{"city":"007","n":3}"#), one("now", "{}")];
    assert_eq!(calls(&FUNCTION, function), Some(both.clone()));
    assert_eq!(calls(&INVOKE, invoke), Some(both.clone()));
    let glm = "w\n<arg_key>city</arg_key>\n<arg_value>007</arg_value>\n\
               <arg_key>n</arg_key><arg_value>3</arg_value>\n";
    assert_eq!(calls(&ARGUMENTS, glm), Some(both[..1].to_vec()));
    assert_eq!(calls(&ARGUMENTS, "now\n"), Some(both[1..].to_vec()));
}

#[test]
fn values_keep_their_text() {
    for (value, lines) in [
        ("a\n\nb", "a\\n\\nb"),
        (" <b>&amp;</b> ", " <b>&amp;</b> "),
        ("</parameter> x", "</parameter> x"),
        ("</function>", "</function>"),
        ("", ""),
        ("\n", "\\n"),
    ] {
        let text = format!("<function=w><parameter=city>\n{value}\n</parameter></function>");
        let expected = format!(r#"{{"city":"{lines}"}}"#);
        assert_eq!(calls(&FUNCTION, &text), Some(vec![one("w", &expected)]), "{text}");
    }
    let line = "<invoke name=\"w\"><parameter name=\"city\">x\n</parameter></invoke>";
    assert_eq!(calls(&INVOKE, line), Some(vec![one("w", r#"{"city":"x\n"}"#)]));
    let lines = "<invoke name=\"w\"><parameter name=\"city\">\nx\n</parameter></invoke>";
    assert_eq!(calls(&INVOKE, lines), Some(vec![one("w", r#"{"city":"x"}"#)]));
}

#[test]
fn what_is_no_call() {
    for text in [
        "",
        "x",
        "<function=w>",
        "<function=w></function> x",
        "<function=></function>",
        "<function=w><parameter=city>x</function>",
        "<function=w><parameter=city>x</parameter>",
        "<function=w>x</function>",
    ] {
        assert_eq!(calls(&FUNCTION, text), None, "{text}");
    }
    for text in
        ["", "nobody", "two words", "w<arg_key>city</arg_key>", "w<arg_key>a</arg_key>b<arg_value>"]
    {
        assert_eq!(calls(&ARGUMENTS, text), None, "{text}");
    }
}
