const NORM: u32 = 0;  // plan: 1 if the kernel normalises its row
