#include "clients/pagodactl/parser.h"

int main(int argc, char** argv) { return pagoda::RunPagodactl(argc, argv); }
