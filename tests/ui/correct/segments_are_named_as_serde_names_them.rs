use serde::Serialize;
use sqlstreams::RouteSegment;

macro_rules! named_as {
    ($($rule:literal => $name:ident),*) => {$(
        #[derive(Clone, Copy, Serialize, RouteSegment)]
        #[serde(rename_all = $rule)]
        #[allow(non_camel_case_types)]
        enum $name {
            Eu,
            EuWest1,
            HTTPHeader,
            Snake_Case,
            #[serde(rename = "over-ridden")]
            Renamed,
            #[serde(rename(serialize = "one-way", deserialize = "other-way"))]
            OneWay,
        }

        impl $name {
            const ALL: [$name; 6] = [
                $name::Eu, $name::EuWest1, $name::HTTPHeader, $name::Snake_Case, $name::Renamed, $name::OneWay,
            ];
        }
    )*

        fn main() {
            $(
                for (value, name) in $name::ALL.iter().zip($name::VALUES.unwrap()) {
                    let written = serde_json::to_value(value).unwrap();
                    assert_eq!(written, *name, $rule);
                    assert_eq!(value.segment(), *name);
                }
            )*
            assert_eq!(Plain::VALUES.unwrap(), ["Eu", "us"]);
            assert_eq!(serde_json::to_value(Plain::Eu).unwrap(), "Eu");
            assert_eq!(Plain::Us.segment(), "us");
        }
    };
}

#[derive(Serialize, RouteSegment)]
enum Plain {
    Eu,
    #[route_segment("us")]
    Us,
}

named_as! {
    "lowercase" => Lower,
    "UPPERCASE" => Upper,
    "PascalCase" => Pascal,
    "camelCase" => Camel,
    "snake_case" => Snake,
    "SCREAMING_SNAKE_CASE" => ScreamingSnake,
    "kebab-case" => Kebab,
    "SCREAMING-KEBAB-CASE" => ScreamingKebab
}
