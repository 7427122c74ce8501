//! The program `turnstream`: see the library beside it.

fn main() {
    turnstream_cli::main();
}
