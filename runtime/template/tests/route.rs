//! Templates for routes.

use distlock_template::{RoutePart, RouteSource, Template, ValueType};

fn part(template: &str) -> Result<RoutePart<'_>, String> {
    let parsed = Template::parse(template).unwrap();
    let placeholder = parsed.placeholders().next().unwrap();
    RoutePart::parse(template, placeholder).map_err(|error| error.to_string())
}

#[test]
fn every_part_of_a_request_is_known() {
    let cases = [
        ("<sku_id>", RouteSource::Parameter("sku_id"), ValueType::Text),
        ("<sku-id as str>", RouteSource::Parameter("sku-id"), ValueType::Text),
        ("< id  as  i8 >", RouteSource::Parameter("id"), ValueType::Signed { bits: 8 }),
        ("<id as u128>", RouteSource::Parameter("id"), ValueType::Unsigned { bits: 128 }),
        ("<order as uuid>", RouteSource::Parameter("order"), ValueType::Uuid),
        ("<as as str>", RouteSource::Parameter("as"), ValueType::Text),
        ("<header:x-tenant>", RouteSource::Header("x-tenant"), ValueType::Text),
        ("<header: x-id as u64>", RouteSource::Header("x-id"), ValueType::Unsigned { bits: 64 }),
        ("<query:page>", RouteSource::Query("page"), ValueType::Text),
        ("<method>", RouteSource::Method, ValueType::Text),
        ("<path>", RouteSource::Path, ValueType::Text),
    ];
    for (template, source, value_type) in cases {
        assert_eq!(part(template), Ok(RoutePart { source, value_type }), "{template}");
    }
}

#[test]
fn what_is_no_part_is_refused_with_what_to_write() {
    let cases = [
        ("<order.id>", "a route knows no variables"),
        ("<sku_id as u65>", "did you mean `<sku_id as u64>`?"),
        ("<sku_id as String>", "did you mean `<sku_id as str>`?"),
        ("<sku_id as>", "is no part of a request"),
        ("<headers:x-tenant>", "did you mean `<header:x-tenant>`?"),
        ("<cookie:session>", "`cookie:` is no part of a request"),
        ("<header:>", "is no name of a header"),
        ("<header:x tenant>", "is no name of a header"),
        ("<query:>", "names no field"),
        ("<method as u64>", "write `<method>` without a type"),
    ];
    for (template, expected) in cases {
        let error = part(template).unwrap_err();
        assert!(error.contains(expected), "{template}: {error}");
    }
}

#[test]
fn the_error_points_into_the_template() {
    assert_eq!(
        part("stock:lock:<sku_id as u65>").unwrap_err(),
        "\
`u65` is no type that a part of a request can be read as
  stock:lock:<sku_id as u65>
             ^^^^^^^^^^^^^^^
did you mean `<sku_id as u64>`? there are i8 to i128, u8 to u128, isize, usize, uuid and str"
    );
}
