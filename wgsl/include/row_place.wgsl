// Where the token of a row of a call is. Without SEQUENCES, rows follow one another from the position on. In a batch every
// row is a token of some sequence: t_rows has its sequence and position, and then the sequence that holds the beginning it
// shares with others, and how many positions that is, a multiple of eight. Blocks of eight positions are the outer dim of a
// cache and sequences the next, so that short texts reach the first part only. Each turn of a submission is one position on.
// include: slots
const SEQUENCES: u32 = 0;  // plan: sequences in the caches; 0 if the call is not a batch
// if SEQUENCES: @group(0) @binding(11) var<storage, read> t_rows: array<vec4<i32>>;

struct RowPlace { position: u32, sequence: u32, source: u32, length: u32 }  // length of what is shared with the source

fn place_of(row: u32) -> RowPlace {
  return RowPlace(slot(params.pos_slot) + row, 0, 0, 0);  // if SEQUENCES == 0
  // if SEQUENCES: let at = vec4<u32>(t_rows[row]);
  // if SEQUENCES: let last = slot(params.pos_slot);  // the largest position of the call
  // if SEQUENCES: return RowPlace(min(at.y + slot(TURN), last), min(at.x, SEQUENCES - 1), min(at.z, SEQUENCES - 1), at.w);
}

// Index of the block of eight positions that has position p of a row's text.
fn block_of(place: RowPlace, p: u32) -> u32 {
  return p / 8;  // if SEQUENCES == 0
  // if SEQUENCES: return p / 8 * SEQUENCES + select(place.sequence, place.source, p < place.length);
}
