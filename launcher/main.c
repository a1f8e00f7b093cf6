/* ddprun: nothing but the library's main, so that a program with models of its own can have the same. */
#include <ddp/ddp.h>

int main(int argc, char **argv)
{
    return ddp_main(argc, argv);
}
