// task: add
// expect: BUILD_ERROR
// tries: a compiler's message that looks as if the machine were at fault
#error No space left on device
