// Stores the chosen id: for the host, in the place of this turn, and as the token of the next turn.
// include: slots
const IDS: u32 = 1;  // plan: 1 if the token of the next turn is set

fn store(id: i32) {
  t_out[slot(TURN)] = id;
  t_ids[0] = id;  // if IDS
}
