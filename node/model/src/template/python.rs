//! minijinja made to behave as the Jinja of Python's transformers.

use super::json::{self, Style};
use minijinja::value::{Kwargs, Value};
use minijinja::{
    AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior, escape_formatter,
    syntax::SyntaxConfig,
};

/// A calendar day, for templates that tell the model the date.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Date {
    /// Gregorian year.
    pub year: u16,
    /// 1 to 12.
    pub month: u8,
    /// 1 to 31.
    pub day: u8,
}

impl Date {
    /// The day, in UTC, of a time in seconds since the Unix epoch; the calendar by Howard Hinnant's
    /// `civil_from_days` (days of 400-year eras, years that begin in March).
    pub fn of_unix(seconds: u64) -> Self {
        let days = seconds / 86_400 + 719_468;
        let (era, day_of_era) = (days / 146_097, days % 146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted_month = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
        let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
        let year = year_of_era + era * 400 + u64::from(month <= 2);
        Self {
            year: u16::try_from(year).unwrap_or(u16::MAX),
            month: u8::try_from(month).unwrap_or(1),
            day: u8::try_from(day).unwrap_or(1),
        }
    }
}

/// Leads the message of [`raised`] errors, so that they are told from failures.
const RAISED: &str = "raised by the template: ";

/// An environment with the settings and functions of transformers'
/// `_compile_jinja_template`: trimmed blocks, its `tojson`, `raise_exception`, `strftime_now`, and
/// Python's methods of strings, lists and dictionaries.
pub(super) fn environment(today: Option<Date>) -> Environment<'static> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    environment.set_syntax(syntax.unwrap_or_default());
    environment.set_undefined_behavior(UndefinedBehavior::Lenient);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    // Texts, which are nearly all that is written, without the way through a formatter.
    environment.set_formatter(|out, state, value| match (state.auto_escape(), value.as_str()) {
        (AutoEscape::None, Some(text)) => out.write_str(text).map_err(Error::from),
        _ => escape_formatter(out, state, value),
    });
    environment.add_filter("tojson", tojson);
    environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, format!("{RAISED}{message}")))
    });
    if let Some(today) = today {
        environment.add_function("strftime_now", move |format: String| today.strftime(&format));
    }
    environment
}

/// The message that the template gave to `raise_exception`, if that is what the error is.
pub(super) fn raised(error: &Error) -> Option<String> {
    error.detail()?.strip_prefix(RAISED).map(str::to_owned)
}

/// `json.dumps` with the arguments that transformers' filter takes.
fn tojson(value: &Value, indent: Option<Value>, args: Kwargs) -> Result<Value, Error> {
    let invalid = |e: String| Error::new(ErrorKind::InvalidOperation, e);
    if indent.is_none() && args.args().next().is_none() {
        return json::dumps_plainly(value).map_err(invalid);
    }
    let mut style = Style::default();
    let indent = match indent {
        Some(indent) => Some(indent),
        None => args.get::<Option<Value>>("indent")?,
    };
    if let Some(indent) = indent.filter(|indent| !indent.is_none()) {
        style.item_separator = ",".into(); // as json.dumps does with an indent
        style.indent = Some(match indent.as_str() {
            Some(text) => text.to_owned(),
            None => " ".repeat(usize::try_from(indent)?.min(80)),
        });
    }
    if let Some([item, key]) = args.get::<Option<Vec<String>>>("separators")?.as_deref() {
        (style.item_separator, style.key_separator) = (item.clone(), key.clone());
    }
    style.ascii = args.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false);
    style.sort_keys = args.get::<Option<bool>>("sort_keys")?.unwrap_or(false);
    args.assert_all_used()?;
    let text = json::dumps(value, &style);
    text.map(Value::from).map_err(invalid)
}

/// transformers marks what an assistant said with `{% generation %}` for training; it renders as
/// its content. A condition that is always true takes its place: whitespace stays as it was.
pub(super) fn without_generation_marks(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some((before, tail)) = rest.split_once("{%") {
        out.push_str(before);
        out.push_str("{%");
        let Some((tag, after)) = tail.split_once("%}") else {
            rest = tail;
            break;
        };
        let word = tag.trim_matches(|c: char| c.is_whitespace() || c == '-' || c == '+');
        match word {
            "generation" => out.push_str(&tag.replace(word, "if true")),
            "endgeneration" => out.push_str(&tag.replace(word, "endif")),
            _ => out.push_str(tag),
        }
        out.push_str("%}");
        rest = after;
    }
    out.push_str(rest);
    out
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

impl Date {
    /// Python's `strftime` for midnight of this day, in the C locale. Directives that it does not
    /// know stay as they are written.
    fn strftime(self, format: &str) -> String {
        let mut out = String::new();
        let mut letters = format.chars();
        while let Some(letter) = letters.next() {
            if letter != '%' {
                out.push(letter);
                continue;
            }
            match letters.next() {
                Some('-') => match letters.next() {
                    Some(directive) => {
                        let text = self.directive(directive);
                        let bare = text.trim_start_matches('0');
                        out.push_str(if bare.is_empty() { "0" } else { bare });
                    }
                    None => out.push_str("%-"),
                },
                Some(directive) => out.push_str(&self.directive(directive)),
                None => out.push('%'),
            }
        }
        out
    }

    fn directive(self, directive: char) -> String {
        let month = MONTHS.get(usize::from(self.month).wrapping_sub(1)).copied().unwrap_or("?");
        let weekday = WEEKDAYS.get(self.weekday()).copied().unwrap_or("?");
        let (year, month_number, day) = (self.year, self.month, self.day);
        match directive {
            'Y' => format!("{year:04}"),
            'y' => format!("{:02}", year % 100),
            'm' => format!("{month_number:02}"),
            'd' => format!("{day:02}"),
            'e' => format!("{day:>2}"),
            'B' => month.to_owned(),
            'b' | 'h' => month.chars().take(3).collect(),
            'A' => weekday.to_owned(),
            'a' => weekday.chars().take(3).collect(),
            'j' => format!("{:03}", self.day_of_year()),
            'F' => format!("{year:04}-{month_number:02}-{day:02}"),
            'D' => format!("{month_number:02}/{day:02}/{:02}", year % 100),
            'H' | 'M' | 'S' => "00".to_owned(),
            'I' => "12".to_owned(),
            'p' => "AM".to_owned(),
            'T' => "00:00:00".to_owned(),
            '%' => "%".to_owned(),
            other => format!("%{other}"),
        }
    }

    fn day_of_year(self) -> u16 {
        const BEFORE: [u16; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
        let leap = self.year.is_multiple_of(4)
            && (!self.year.is_multiple_of(100) || self.year.is_multiple_of(400));
        let before = BEFORE.get(usize::from(self.month).wrapping_sub(1)).copied().unwrap_or(0);
        before + u16::from(self.day) + u16::from(leap && self.month > 2)
    }

    /// Days since Sunday, by Sakamoto's method.
    fn weekday(self) -> usize {
        const SHIFT: [usize; 12] = [0, 3, 2, 5, 0, 3, 5, 1, 4, 6, 2, 4];
        let year = usize::from(self.year) - usize::from(self.month < 3 && self.year > 0);
        let shift = SHIFT.get(usize::from(self.month).wrapping_sub(1)).copied().unwrap_or(0);
        (year + year / 4 - year / 100 + year / 400 + shift + usize::from(self.day)) % 7
    }
}
