// include: q4_strips
// include: q4_x_plain
