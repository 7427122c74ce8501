//! The pictures of the README and the guide.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

#[test]
fn the_picture_in_the_guides_page_is_the_file_of_that_name() {
    let picture = include_bytes!("../pictures/retry.png");
    let embedded = include_str!("../src/guide/retry.png.base64");
    assert_eq!(STANDARD.decode(embedded).unwrap(), picture);
}
