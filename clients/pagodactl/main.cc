#include "clients/pagodactl/command/command.h"

int main(int argc, char** argv) { return pagoda::RunPagodactl(argc, argv); }
